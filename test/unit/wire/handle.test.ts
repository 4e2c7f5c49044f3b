// Handles: packing, the three encodings, refusals.

import { expect } from 'chai';
import fc from 'fast-check';
import { DataHandle, MPSC_BIT, StreamAnchorHandle, StreamCancelHandle } from '../../../lib/wire/handle.js';
import { parseJson, stringifyJson } from '../../../lib/wire/json.js';
import { codeOf, fromHex, loadVectors, toHex } from '../../support/vectors.js';

interface HandleVector {
  name: string;
  hi: string;
  lo: string;
  kind: string;
  id: string;
  msgpack: string;
  json: string;
  text: string;
}

const MAX_U64 = 2n ** 64n - 1n;
const u64 = fc.bigInt({ min: 0n, max: MAX_U64 });
const id63 = fc.bigInt({ min: 0n, max: MPSC_BIT - 1n });

describe('wire/handle', () => {
  it('AF-01 worker and local id survive packing into 128 bits, worker on top', () => {
    const handle = StreamAnchorHandle.pack(0xdeadbeef12345678n, 42n, 'spsc');
    expect(handle.toU128()).to.equal((0xdeadbeef12345678n << 64n) | 42n);
    fc.assert(
      fc.property(u64, id63, (worker, id) => {
        const back = StreamAnchorHandle.fromU128(StreamAnchorHandle.pack(worker, id, 'spsc').toU128());
        expect([back.worker, back.local]).to.deep.equal([worker, id]);
      }),
    );
  });

  it('AF-02 bit 63 of the local half tells an MPSC anchor', () => {
    const single = StreamAnchorHandle.pack(1n, 5n, 'spsc');
    const several = StreamAnchorHandle.pack(1n, 5n, 'mpsc');
    expect([single.kind, several.kind]).to.deep.equal(['spsc', 'mpsc']);
    expect(single.equals(several)).to.equal(false);
    expect(several.local).to.equal(0x8000000000000005n);
    expect(several.id).to.equal(5n);
  });

  it('AF-03 edge ids survive every encoding', () => {
    const handles = [
      StreamAnchorHandle.pack(MAX_U64, 0n, 'spsc'),
      StreamAnchorHandle.pack(0n, MPSC_BIT - 1n, 'spsc'),
      StreamAnchorHandle.pack(MAX_U64, MPSC_BIT - 1n, 'mpsc'),
    ];
    expect(handles[2]!.local).to.equal(MAX_U64);
    for (const handle of handles) {
      expect(StreamAnchorHandle.fromU128(handle.toU128()).equals(handle)).to.equal(true);
      expect(StreamAnchorHandle.fromMsgpack(handle.toMsgpack()).equals(handle)).to.equal(true);
      expect(StreamAnchorHandle.fromJSON(parseJson(stringifyJson(handle))).equals(handle)).to.equal(true);
    }
  });

  it('AF-04 an id that already carries the MPSC bit is refused', () => {
    expect(codeOf(() => StreamAnchorHandle.pack(1n, MPSC_BIT | 1n, 'spsc'))).to.equal('ERR_BAD_HANDLE');
    expect(codeOf(() => StreamAnchorHandle.pack(1n, MPSC_BIT, 'mpsc'))).to.equal('ERR_BAD_HANDLE');
    expect(codeOf(() => StreamAnchorHandle.pack(1n, -1n, 'spsc'))).to.equal('ERR_BAD_HANDLE');
  });

  it('AF-05 anchor and cancel handles survive MessagePack and JSON', () => {
    fc.assert(
      fc.property(u64, u64, (hi, lo) => {
        const anchor = new StreamAnchorHandle(hi, lo);
        const cancel = new StreamCancelHandle(hi, lo);
        expect(StreamAnchorHandle.fromMsgpack(anchor.toMsgpack()).equals(anchor)).to.equal(true);
        expect(StreamCancelHandle.fromMsgpack(cancel.toMsgpack()).equals(cancel)).to.equal(true);
        expect(StreamAnchorHandle.fromJSON(parseJson(stringifyJson(anchor))).equals(anchor)).to.equal(true);
        expect(StreamCancelHandle.fromJSON(parseJson(stringifyJson(cancel))).equals(cancel)).to.equal(true);
        expect(StreamCancelHandle.fromU128(cancel.toU128()).equals(cancel)).to.equal(true);
      }),
    );
  });

  it('AF-06 the worker half alone names the destination', () => {
    expect(StreamAnchorHandle.fromU128((7n << 64n) | MPSC_BIT | 9n).worker).to.equal(7n);
  });

  it('takes small halves as numbers, and refuses numbers that have lost bits', () => {
    expect(StreamAnchorHandle.fromJSON({ hi: 1, lo: 2n }).toU128()).to.equal((1n << 64n) | 2n);
    for (const value of [
      JSON.parse('{"hi":1234605616436508552,"lo":1}'),
      { hi: 1, lo: -1 },
      { hi: 1, lo: 1.5 },
      { hi: 1, lo: 2n ** 64n },
      { hi: '1', lo: 1 },
      { hi: 1 },
      [1, 2],
      null,
      'x',
    ]) {
      expect(codeOf(() => StreamAnchorHandle.fromJSON(value))).to.equal('ERR_BAD_HANDLE');
    }
    expect(codeOf(() => StreamAnchorHandle.fromU128(1n << 128n))).to.equal('ERR_BAD_HANDLE');
    expect(codeOf(() => StreamAnchorHandle.fromU128(-1n))).to.equal('ERR_BAD_HANDLE');
  });

  it('reads the map form, and refuses other shapes of MessagePack', () => {
    expect(StreamAnchorHandle.fromMsgpack(fromHex('82a2686901a26c6f02')).toU128()).to.equal((1n << 64n) | 2n);
    expect(StreamAnchorHandle.fromMsgpack(fromHex('83a178c0a26c6f02a2686901')).toU128()).to.equal((1n << 64n) | 2n);
    for (const hex of ['', '9101', '93010203', '92ff01', '9201', '81a2686901', '92010200', 'c0']) {
      expect(
        codeOf(() => StreamAnchorHandle.fromMsgpack(fromHex(hex))),
        hex,
      ).to.equal('ERR_BAD_HANDLE');
    }
  });

  it('a data handle is decimal text in a header and two halves in JSON', () => {
    const handle = new DataHandle(0xc56cde21e711bf96n, 1n);
    expect(handle.toText()).to.equal('262423188611324055734162540085582495745');
    expect(DataHandle.fromText(handle.toText()).equals(handle)).to.equal(true);
    expect(stringifyJson(handle)).to.equal('{"hi":14225989560148541334,"lo":1}');
    expect(handle.toString()).to.equal('DataHandle(worker=14225989560148541334, local=1)');
    for (const text of ['', '-1', '0x10', '1 ', `${2n ** 128n}`, '9'.repeat(39), '1'.repeat(60)]) {
      expect(
        codeOf(() => DataHandle.fromText(text)),
        text,
      ).to.equal('ERR_BAD_HANDLE');
    }
  });

  for (const vector of loadVectors<HandleVector>('handles')) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const handle = new StreamAnchorHandle(BigInt(vector.hi), BigInt(vector.lo));
      expect(toHex(handle.toMsgpack())).to.equal(vector.msgpack);
      expect(stringifyJson(handle)).to.equal(vector.json);
      expect(handle.toString()).to.equal(vector.text);
      expect([handle.kind, handle.id]).to.deep.equal([vector.kind, BigInt(vector.id)]);
      expect(StreamAnchorHandle.fromMsgpack(fromHex(vector.msgpack)).equals(handle)).to.equal(true);
      expect(StreamAnchorHandle.fromJSON(parseJson(vector.json)).equals(handle)).to.equal(true);
    });
  }
});
