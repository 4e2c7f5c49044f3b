// Worker ids, instance ids, response ids, the hash behind them, and the names.

import { expect } from 'chai';
import fc from 'fast-check';
import { u64High, u64Low } from '../../../lib/wire/bytes.js';
import { MsgpackReader, MsgpackWriter } from '../../../lib/wire/msgpack.js';
import { BATCH_HANDLERS, isSystemHandler } from '../../../lib/wire/names.js';
import {
  MAX_RESPONSE_GENERATION,
  type ResponseId,
  readResponseId,
  responseIdFromU128,
  responseIdToU128,
  writeResponseId,
} from '../../../lib/wire/response-id.js';
import { formatInstanceId, generateInstanceId, parseInstanceId, workerIdOf } from '../../../lib/wire/worker-id.js';
import { xxh3 } from '../../../lib/wire/xxh3.js';
import { codeOf, fromHex, loadVectorFile, loadVectors, toHex } from '../../support/vectors.js';

describe('wire/worker-id', () => {
  for (const vector of loadVectors<{ instance: string; worker: string; decimal: string }>('worker-ids')) {
    it(`vector: ${vector.instance}`, () => {
      expect(workerIdOf(vector.instance)).to.equal(BigInt(vector.worker));
      expect(workerIdOf(parseInstanceId(vector.instance))).to.equal(BigInt(vector.decimal));
    });
  }

  it('reads the usual spellings of a UUID and writes one', () => {
    const text = 'f47ac10b-58cc-4372-a567-0e02b2c3d479';
    for (const spelling of [text, text.toUpperCase(), text.replaceAll('-', ''), `{${text}}`, `urn:uuid:${text}`]) {
      expect(formatInstanceId(parseInstanceId(spelling))).to.equal(text);
    }
    for (const bad of ['', 'f47ac10b', `${text}0`, `${text.slice(0, -1)}g`, `{${text}`, text.replace('-', '')]) {
      expect(
        codeOf(() => parseInstanceId(bad)),
        bad,
      ).to.equal('ERR_BAD_ADDRESS');
    }
    expect(codeOf(() => formatInstanceId(new Uint8Array(15)))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => workerIdOf(new Uint8Array(17)))).to.equal('ERR_INVALID_ARGUMENT');
  });

  it('an instance id is 16 bytes of bin in MessagePack', () => {
    const [vector] = loadVectors<{ instance: string; hex: string }>('instance-id-msgpack');
    expect(toHex(new MsgpackWriter().bin(parseInstanceId(vector!.instance)).finish())).to.equal(vector!.hex);
    expect(formatInstanceId(new MsgpackReader(fromHex(vector!.hex)).bin())).to.equal(vector!.instance);
  });

  it('mints version-4 ids from the bytes it is given', () => {
    const id = generateInstanceId((length) => new Uint8Array(length).fill(0xff));
    expect(id).to.equal('ffffffff-ffff-4fff-bfff-ffffffffffff');
    expect(workerIdOf(id)).to.not.equal(0n);
    let asked = 0;
    expect(
      codeOf(() =>
        generateInstanceId(() => {
          asked += 1;
          return new Uint8Array(3);
        }),
      ),
    ).to.equal('ERR_INVALID_ARGUMENT');
    expect(asked).to.equal(1);
  });
});

describe('wire/xxh3', () => {
  it('vectors of every length class', () => {
    const data = Uint8Array.from({ length: 5000 }, (_, i) => (i * 131 + 7) & 0xff);
    for (const vector of loadVectors<{ length: number; hash: string }>('xxh3')) {
      expect(xxh3(data.subarray(0, vector.length)), `${vector.length}`).to.equal(BigInt(vector.hash));
    }
  });

  it('vectors: checksums of addresses', () => {
    const { checksums } = loadVectorFile<{ checksums: { name: string; hex: string; checksum: string }[] }>('addresses');
    for (const vector of checksums) expect(xxh3(fromHex(vector.hex)), vector.name).to.equal(BigInt(vector.checksum));
  });
});

describe('wire/response-id', () => {
  for (const vector of loadVectors<{ name: string; worker: string; slot: number; generation: number; hex: string }>(
    'response-ids',
  )) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const worker = BigInt(vector.worker);
      const bytes = new Uint8Array(16);
      writeResponseId(bytes, 0, u64High(worker), u64Low(worker), vector.slot, vector.generation);
      expect(toHex(bytes)).to.equal(vector.hex);
      const id = readResponseId(fromHex(`00${vector.hex}`), 1);
      expect(id).to.deep.equal({
        workerHi: u64High(worker),
        workerLo: u64Low(worker),
        slot: vector.slot,
        generation: vector.generation,
      });
    });
  }

  it('survives bytes and u128', () => {
    const u32 = fc.integer({ min: 0, max: 0xffffffff });
    const slot = fc.integer({ min: 0, max: 65_535 });
    const generation = fc.maxSafeInteger().map((value) => Math.abs(value) % (MAX_RESPONSE_GENERATION + 1));
    fc.assert(
      fc.property(u32, u32, slot, generation, (workerHi, workerLo, s, g) => {
        const id: ResponseId = { workerHi, workerLo, slot: s, generation: g };
        const bytes = new Uint8Array(20);
        writeResponseId(bytes, 3, workerHi, workerLo, s, g);
        expect(readResponseId(bytes, 3)).to.deep.equal(id);
        expect(responseIdFromU128(responseIdToU128(id))).to.deep.equal(id);
      }),
    );
  });

  it('refuses a value beyond u128', () => {
    expect(codeOf(() => responseIdFromU128(1n << 128n))).to.equal('ERR_INVALID_ARGUMENT');
  });
});

describe('wire/names', () => {
  it('names sixteen batch handlers', () => {
    expect(BATCH_HANDLERS).to.have.length(16);
    expect(BATCH_HANDLERS[0]).to.equal('_stream_batch');
    expect(BATCH_HANDLERS[15]).to.equal('_stream_batch.15');
    expect(new Set(BATCH_HANDLERS).size).to.equal(16);
  });

  it('tells system names by their first character', () => {
    expect([isSystemHandler('_x'), isSystemHandler('x_')]).to.deep.equal([true, false]);
  });
});
