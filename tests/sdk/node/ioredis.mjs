// ioredis with its defaults; see shared.mjs.

import assert from 'node:assert/strict'
import { Redis } from 'ioredis'
import { main } from './shared.mjs'

await main(async (port) => {
  const client = new Redis(port)

  async function basics() {
    assert.equal(await client.ping(), 'PONG')
    assert.equal(await client.set('io:a', '1'), 'OK')
    assert.equal(await client.get('io:a'), '1')
    assert.equal(await client.get('io:none'), null)
    assert.equal(await client.set('io:a', '2', 'NX'), null)
    assert.equal(await client.set('io:a', '2', 'GET'), '1')
    assert.equal(await client.incr('io:n'), 1)
    assert.equal(await client.incrby('io:n', 41), 42)
    assert.equal(await client.mset('io:m1', '1', 'io:m2', '2'), 'OK')
    assert.deepEqual(await client.mget('io:m1', 'io:none', 'io:m2'), ['1', null, '2'])
    assert.equal(await client.expire('io:m1', 100), 1)
    assert.equal(await client.ttl('io:m1'), 100)
    assert.equal(await client.del('io:m1', 'io:none'), 1)
    assert.equal(await client.exists('io:m1'), 0)
    assert.equal(await client.type('io:m2'), 'string')
    assert.equal(await client.setnx('io:lock', 'me'), 1)
    assert.equal(await client.getdel('io:lock'), 'me')
    assert.equal(await client.append('io:a', '3'), 2)
    assert.equal(await client.set('io:short', 'x', 'PX', 30), 'OK')
    await new Promise((resolve) => setTimeout(resolve, 60))
    assert.equal(await client.get('io:short'), null)

    const pipeline = client.pipeline()
    for (let n = 0; n < 1000; n++) pipeline.set(`io:p:${n}`, String(n)).get(`io:p:${n}`)
    const replies = await pipeline.exec()
    replies.forEach(([error, reply], index) => {
      assert.equal(error, null)
      assert.equal(reply, index % 2 === 0 ? 'OK' : String((index - 1) / 2))
    })
    const seen = new Set()
    for await (const keys of client.scanStream({ match: 'io:p:*', count: 100 })) {
      for (const key of keys) seen.add(key)
    }
    assert.equal(seen.size, 1000)
    await client.set('io:a', 'text')
    await assert.rejects(client.incr('io:a'), /not an integer/)
    assert.match(await client.info(), /role:master/)
  }

  return {
    basics,
    set: async (key, value) => assert.equal(await client.set(key, value), 'OK'),
    get: (key) => client.getBuffer(key),
    close: () => client.quit(),
  }
})
