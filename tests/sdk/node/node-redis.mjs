// node-redis with its defaults; see shared.mjs.

import assert from 'node:assert/strict'
import { createClient, RESP_TYPES } from 'redis'
import { main } from './shared.mjs'

await main(async (port) => {
  const client = createClient({ url: `redis://127.0.0.1:${port}` })
  client.on('error', (error) => {
    throw error
  })
  await client.connect()
  const buffers = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })

  async function basics() {
    assert.equal(await client.ping(), 'PONG')
    assert.equal(await client.set('nr:a', '1'), 'OK')
    assert.equal(await client.get('nr:a'), '1')
    assert.equal(await client.get('nr:none'), null)
    assert.equal(await client.set('nr:a', '2', { condition: 'NX' }), null)
    assert.equal(await client.set('nr:a', '2', { GET: true }), '1')
    assert.equal(await client.incr('nr:n'), 1)
    assert.equal(await client.incrBy('nr:n', 41), 42)
    assert.equal(await client.mSet({ 'nr:m1': '1', 'nr:m2': '2' }), 'OK')
    assert.deepEqual(await client.mGet(['nr:m1', 'nr:none', 'nr:m2']), ['1', null, '2'])
    assert.equal(await client.expire('nr:m1', 100), 1)
    assert.equal(await client.ttl('nr:m1'), 100)
    assert.equal(await client.del(['nr:m1', 'nr:none']), 1)
    assert.equal(await client.exists('nr:m1'), 0)
    assert.equal(await client.type('nr:m2'), 'string')
    assert.equal(await client.setNX('nr:lock', 'me'), 1)
    assert.equal(await client.getDel('nr:lock'), 'me')
    assert.equal(await client.append('nr:a', '3'), 2)
    assert.equal(await client.set('nr:short', 'x', { expiration: { type: 'PX', value: 30 } }), 'OK')
    await new Promise((resolve) => setTimeout(resolve, 60))
    assert.equal(await client.get('nr:short'), null)

    // What is issued in one turn of the event loop goes out as one pipeline.
    const replies = await Promise.all(
      Array.from({ length: 1000 }, (_, n) => client.set(`nr:p:${n}`, String(n))),
    )
    assert(replies.every((reply) => reply === 'OK'))
    const seen = new Set()
    for await (const keys of client.scanIterator({ MATCH: 'nr:p:*', COUNT: 100 })) {
      for (const key of keys) seen.add(key)
    }
    assert.equal(seen.size, 1000)
    const piped = await client.multi().set('nr:x', '1').get('nr:x').execAsPipeline()
    assert.deepEqual(piped, ['OK', '1'])
    await client.set('nr:a', 'text')
    await assert.rejects(client.incr('nr:a'), /not an integer/)
    assert.match(await client.info(), /role:master/)
  }

  return {
    basics,
    set: async (key, value) => assert.equal(String(await buffers.set(key, value)), 'OK'),
    get: (key) => buffers.get(key),
    close: () => client.close(),
  }
})
