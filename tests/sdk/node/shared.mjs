// What the two Node programs share.
// Usage: PROGRAM basics PORT | write PORT CORPUS PLAN SHIFT | read PORT CORPUS PLAN SHIFT

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'

const BATCH_BYTES = 4 << 20

function* batches(path) {
  let group = []
  let bytes = 0
  for (const line of readFileSync(path, 'utf8').trim().split('\n')) {
    const [key, offset, size] = line.split(' ')
    group.push({ key, offset: Number(offset), size: Number(size) })
    bytes += Number(size)
    if (bytes >= BATCH_BYTES || group.length === 500) {
      yield group
      group = []
      bytes = 0
    }
  }
  if (group.length > 0) yield group
}

// `sdk` has basics(), set(key, buffer) and get(key) for buffers, and close().
export async function main(connect) {
  const [mode, port, corpusPath, plan, shift] = process.argv.slice(2)
  const sdk = await connect(Number(port))
  if (mode === 'basics') {
    await sdk.basics()
  } else {
    const corpus = readFileSync(corpusPath)
    const slice = ({ offset, size }) =>
      corpus.subarray(offset + Number(shift), offset + Number(shift) + size)
    for (const group of batches(plan)) {
      if (mode === 'write') {
        await Promise.all(group.map((entry) => sdk.set(entry.key, slice(entry))))
      } else {
        const values = await Promise.all(group.map((entry) => sdk.get(entry.key)))
        group.forEach((entry, index) => {
          const same = values[index] !== null && slice(entry).equals(values[index])
          assert(same, `${entry.key} of ${entry.size} bytes came back changed`)
        })
      }
    }
  }
  await sdk.close()
}
