// Envelopes: every messenger vector both ways, the peeks, header maps, malformed headers.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import { u64From, u64High, u64Low } from '../../../lib/wire/bytes.js';
import {
  batchLaneOf,
  decodeAckHeader,
  decodeRequestHeader,
  decodeResponseHeader,
  encodeAckHeader,
  encodeRequestHeader,
  encodeResponseHeader,
  handlerIs,
  isDrainExemptHeader,
  REQUEST_FIXED_LEN,
  refusedResponseId,
  requestHeaderLength,
  requestMapLength,
  writeRequestHeader,
} from '../../../lib/wire/envelope.js';
import { encodeHeaderMap } from '../../../lib/wire/header-map.js';
import { formatMuxSlot, parseMuxSlot } from '../../../lib/wire/mux-slot.js';
import { BATCH_HANDLERS, DRAIN_EXEMPT_HANDLERS } from '../../../lib/wire/names.js';
import { type ResponseId, responseIdFromU128, responseIdToU128 } from '../../../lib/wire/response-id.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_EVENT,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  FRAME_SHUTTING_DOWN,
  FrameReader,
} from '../../../lib/wire/transport-frame.js';
import { encodeUtf8 } from '../../../lib/wire/utf8.js';
import { codeOf, fromHex, loadVectors, toHex, veloErrorOf } from '../../support/vectors.js';

interface MessageVector {
  name: string;
  type: 'request' | 'response' | 'ack' | 'event' | 'shuttingDown';
  responseType?: number;
  ok?: boolean;
  worker?: string;
  u128?: string;
  slot?: number;
  generation?: number;
  handler?: string;
  headers?: [string, string][];
  payload: string;
  hex: string;
}

function idOf(vector: MessageVector): ResponseId {
  if (vector.u128 !== undefined) return responseIdFromU128(BigInt(vector.u128));
  const worker = BigInt(vector.worker ?? 0);
  return {
    workerHi: u64High(worker),
    workerLo: u64Low(worker),
    slot: vector.slot ?? 0,
    generation: vector.generation ?? 0,
  };
}

function headerOf(vector: MessageVector): [type: number, header: Uint8Array] {
  const map = vector.headers === undefined ? new Uint8Array(0) : encodeHeaderMap(vector.headers);
  const id = idOf(vector);
  const ok = vector.ok ?? true;
  switch (vector.type) {
    case 'request':
      return [FRAME_MESSAGE, encodeRequestHeader(vector.responseType ?? 0, id, vector.handler ?? '', map)];
    case 'shuttingDown':
      return [FRAME_SHUTTING_DOWN, encodeRequestHeader(vector.responseType ?? 0, id, vector.handler ?? '', map)];
    case 'response':
      return [FRAME_RESPONSE, encodeResponseHeader(id, ok, map)];
    case 'ack':
      return [FRAME_ACK, encodeAckHeader(id, ok)];
    default:
      return [FRAME_EVENT, encodeAckHeader(id, ok, true)];
  }
}

/** The header and payload of the one frame in `bytes`. */
function unframe(bytes: Uint8Array): { type: number; header: Uint8Array; payload: Uint8Array } {
  const found: { type: number; header: Uint8Array; payload: Uint8Array }[] = [];
  const reader = new FrameReader((type, buffer, at, length, payloadAt, payloadLength) => {
    const header = buffer.slice(at, at + length);
    found.push({ type, header, payload: buffer.slice(payloadAt, payloadAt + payloadLength) });
  });
  expect(reader.push(bytes)).to.equal(true);
  expect(reader.finish()).to.equal(true);
  expect(found).to.have.length(1);
  return found[0]!;
}

const ID: ResponseId = { workerHi: 0xc56cde21, workerLo: 0xe711bf96, slot: 7, generation: 3 };

describe('wire/envelope', () => {
  for (const vector of loadVectors<MessageVector>('messages')) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const [type, header] = headerOf(vector);
      expect(toHex(encodeFrame(type, header, fromHex(vector.payload)))).to.equal(vector.hex);

      const frame = unframe(fromHex(vector.hex));
      expect(frame.type).to.equal(type);
      expect(toHex(frame.payload)).to.equal(vector.payload);
      const headers = vector.headers === undefined ? undefined : new Map(vector.headers);
      const { length } = frame.header;
      if (type === FRAME_MESSAGE || type === FRAME_SHUTTING_DOWN) {
        const decoded = decodeRequestHeader(frame.header, 0, length);
        expect([decoded.responseType, decoded.handler]).to.deep.equal([vector.responseType, vector.handler]);
        expect(decoded.id).to.deep.equal(idOf(vector));
        expect(decoded.headers).to.deep.equal(headers);
        expect(decoded.mapOffset + decoded.mapLength).to.equal(length);
        expect(requestMapLength(frame.header, 0, length)).to.equal(decoded.mapLength);
        expect(refusedResponseId(frame.header, 0, length)).to.deep.equal(idOf(vector));
      } else if (type === FRAME_RESPONSE) {
        expect(decodeResponseHeader(frame.header, 0, length)).to.deep.equal({
          id: idOf(vector),
          ok: vector.ok,
          headers,
        });
      } else {
        const decoded = decodeAckHeader(frame.header, 0, length);
        expect(decoded).to.deep.equal({ event: type === FRAME_EVENT, ok: vector.ok, id: idOf(vector) });
        if (vector.u128 !== undefined) expect(responseIdToU128(decoded.id)).to.equal(BigInt(vector.u128));
      }
    });
  }

  for (const vector of loadVectors<MessageVector>('request-headers')) {
    it(`vector, encoded and decoded: header of ${vector.name}`, () => {
      const header = encodeRequestHeader(vector.responseType ?? 0, idOf(vector), vector.handler ?? '');
      expect(toHex(header)).to.equal(vector.hex);
      const decoded = decodeRequestHeader(fromHex(vector.hex), 0, vector.hex.length / 2);
      expect(decoded.id).to.deep.equal(idOf(vector));
      expect(decoded.handler).to.equal(vector.handler);
    });
  }

  it('writes a header so that it ends where the payload begins', () => {
    const name = encodeUtf8('_stream_batch.3');
    const map = encodeHeaderMap([['_mux_slot', '1:0:77']]);
    const length = requestHeaderLength(name.length, map.length);
    const buffer = new Uint8Array(100).fill(0xee);
    const worker = 0x99aabbccddeeff00n;
    const written = writeRequestHeader(buffer, 90 - length, 0, u64High(worker), u64Low(worker), 0, 1, name, map);
    expect(written).to.equal(length);
    expect([buffer[89 - length], buffer[90]]).to.deep.equal([0xee, 0xee]);
    const decoded = decodeRequestHeader(buffer, 90 - length, length);
    expect(u64From(decoded.id.workerHi, decoded.id.workerLo)).to.equal(worker);
    expect(decoded.headers?.get('_mux_slot')).to.equal('1:0:77');
    expect(batchLaneOf(buffer, 90 - length, length)).to.equal(3);
  });

  it('refuses to write a header that does not fit or breaks a limit', () => {
    const write = (name: Uint8Array, map: Uint8Array, room = 70_000) =>
      writeRequestHeader(new Uint8Array(room), 0, 0, 0, 0, 0, 0, name, map);
    const none = new Uint8Array(0);
    expect(codeOf(() => write(none, none))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => write(new Uint8Array(65_536), none, 80_000))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => write(new Uint8Array(1), new Uint8Array(16_385)))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => write(new Uint8Array(8), none, 29))).to.equal('ERR_INVALID_ARGUMENT');
    expect(write(new Uint8Array(8), none, 30)).to.equal(30);
  });

  it('tells the lane of a batch handler without decoding', () => {
    for (let lane = 0; lane < BATCH_HANDLERS.length; lane++) {
      const header = encodeRequestHeader(0, ID, BATCH_HANDLERS[lane]!);
      expect(batchLaneOf(header, 0, header.length)).to.equal(lane);
      for (let cut = 0; cut < header.length; cut++) expect(batchLaneOf(header, 0, cut)).to.equal(-1);
    }
    const others = [
      '_stream_batch.',
      '_stream_batch.0',
      '_stream_batch.16',
      '_stream_batch.01',
      '_stream_batc',
      '_hello',
    ];
    for (const handler of [...others, '_stream_batch.1x', '_Stream_batch', 'x_stream_batch']) {
      const header = encodeRequestHeader(0, ID, handler);
      expect(batchLaneOf(header, 0, header.length), handler).to.equal(-1);
    }
  });

  it('tells drain-exempt handlers without decoding', () => {
    for (const handler of [...DRAIN_EXEMPT_HANDLERS, '_anchor_attach', '_hello', 'mine', '_stream_stopp']) {
      const header = encodeRequestHeader(0, ID, handler);
      expect(isDrainExemptHeader(header, 0, header.length), handler).to.equal(DRAIN_EXEMPT_HANDLERS.includes(handler));
      expect(handlerIs(header, 0, header.length, encodeUtf8(handler))).to.equal(true);
      expect(handlerIs(header, 0, header.length, encodeUtf8('_stream_sto'))).to.equal(false);
    }
  });

  it('refuses malformed request headers in the order of their fields', () => {
    const good = encodeRequestHeader(1, ID, 'do', encodeHeaderMap([['k', 'v']]));
    const with_ = (at: number, ...values: number[]): Uint8Array => {
      const bytes = good.slice();
      bytes.set(values, at);
      return bytes;
    };
    const cases: [string, Uint8Array][] = [
      ['bytes', good.slice(0, REQUEST_FIXED_LEN - 1)],
      ['schema', with_(0, 2)],
      ['empty', with_(18, 0, 0)],
      ['cut off', with_(18, 0xff, 0xff)],
      ['UTF-8', with_(20, 0xff)],
      ['response type', with_(1, 3)],
      ['header map', with_(22, 0xff, 0xff)],
      ['cut off', with_(22, 6, 0)],
      ['header map', with_(24, 0x93)],
    ];
    for (const [text, bytes] of cases) {
      const error = veloErrorOf(() => decodeRequestHeader(bytes, 0, bytes.length));
      expect(error.code).to.equal('ERR_BAD_ENVELOPE');
      expect(error.message).to.include(text);
    }
    // bytes after the map are ignored
    const longer = new Uint8Array([...good, 1, 2, 3]);
    expect(decodeRequestHeader(longer, 0, longer.length).headers).to.deep.equal(new Map([['k', 'v']]));
  });

  it('reads any outcome but 0 as an error, and ignores extra bytes of an ack', () => {
    const response = encodeResponseHeader(ID, true);
    response[16] = 7;
    expect(decodeResponseHeader(response, 0, response.length).ok).to.equal(false);
    const ack = new Uint8Array([...encodeAckHeader(ID, true), 9, 9]);
    expect(decodeAckHeader(ack, 0, ack.length).ok).to.equal(true);
    expect(codeOf(() => decodeAckHeader(ack, 0, 16))).to.equal('ERR_BAD_ENVELOPE');
    ack[0] = 4;
    expect(codeOf(() => decodeAckHeader(ack, 0, ack.length))).to.equal('ERR_BAD_ENVELOPE');
    expect(codeOf(() => decodeResponseHeader(response, 0, 18))).to.equal('ERR_BAD_ENVELOPE');
    response[17] = 1;
    expect(codeOf(() => decodeResponseHeader(response, 0, response.length))).to.equal('ERR_BAD_ENVELOPE');
  });

  it('a refusal names its call only when its header is one', () => {
    const header = encodeRequestHeader(2, ID, 'ping');
    expect(refusedResponseId(header, 0, 18)).to.deep.equal(ID);
    expect(refusedResponseId(header, 0, 17)).to.equal(undefined);
    header[0] = 2;
    expect(refusedResponseId(header, 0, header.length)).to.equal(undefined);
    header[0] = 1;
    header[1] = 3;
    expect(refusedResponseId(header, 0, header.length)).to.equal(undefined);
  });

  it('mutated headers give a value or ERR_BAD_ENVELOPE', () => {
    const seeds = loadVectors<MessageVector>('messages').map((vector) => unframe(fromHex(vector.hex)).header);
    const bytes = fc
      .tuple(fc.constantFrom(...seeds), fc.nat(), fc.integer({ min: 0, max: 255 }), fc.nat())
      .map(([seed, at, value, cut]) => {
        const mutated = seed.slice();
        mutated[at % mutated.length] = value;
        return cut % 3 === 0 ? mutated.slice(0, cut % (mutated.length + 1)) : mutated;
      });
    fc.assert(
      fc.property(fc.oneof(bytes, fc.uint8Array({ maxLength: 80 })), (header) => {
        batchLaneOf(header, 0, header.length);
        isDrainExemptHeader(header, 0, header.length);
        requestMapLength(header, 0, header.length);
        refusedResponseId(header, 0, header.length);
        for (const decode of [decodeRequestHeader, decodeResponseHeader, decodeAckHeader]) {
          try {
            decode(header, 0, header.length);
          } catch (error) {
            expect(VeloError.is(error, 'ERR_BAD_ENVELOPE')).to.equal(true);
          }
        }
      }),
      { numRuns: 1500 },
    );
  });
});

describe('wire/header-map', () => {
  it('an empty map is one byte, which is not the same as none', () => {
    expect(toHex(encodeHeaderMap([]))).to.equal('80');
    const header = encodeRequestHeader(2, ID, 'ping', encodeHeaderMap([]));
    expect(decodeRequestHeader(header, 0, header.length).headers?.size).to.equal(0);
  });

  it('keeps to the limits of value and map, naming the header', () => {
    expect(() => encodeHeaderMap([['k', 'v'.repeat(1024)]])).to.not.throw();
    const error = veloErrorOf(() => encodeHeaderMap([['trace', 'é'.repeat(513)]]));
    expect([error.code, error.message.includes('trace')]).to.deep.equal(['ERR_INVALID_ARGUMENT', true]);
    const many = Array.from({ length: 17 }, (_, i): [string, string] => [`k${i}`, 'v'.repeat(1000)]);
    expect(codeOf(() => encodeHeaderMap(many))).to.equal('ERR_INVALID_ARGUMENT');
    expect(() => encodeHeaderMap(many.slice(0, 16))).to.not.throw();
  });

  it('reads any valid form of map and strings', () => {
    const map = fromHex('de0001d9016bda000176');
    const header = encodeRequestHeader(2, ID, 'ping', map);
    expect(decodeRequestHeader(header, 0, header.length).headers).to.deep.equal(new Map([['k', 'v']]));
  });

  for (const vector of loadVectors<{
    name: string;
    epoch: string;
    slot: number;
    session: string;
    text: string;
    map: string;
  }>('mux-slot-header')) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const slot = { epoch: BigInt(vector.epoch), slot: vector.slot, session: BigInt(vector.session) };
      expect(formatMuxSlot(slot)).to.equal(vector.text);
      expect(parseMuxSlot(vector.text)).to.deep.equal(slot);
      expect(toHex(encodeHeaderMap([['_mux_slot', formatMuxSlot(slot)]]))).to.equal(vector.map);
    });
  }

  it('a slot header survives at its edges, and other text is not one', () => {
    const edge = { epoch: 2n ** 64n - 1n, slot: 0xffffffff, session: 2n ** 64n - 1n };
    expect(parseMuxSlot(formatMuxSlot(edge))).to.deep.equal(edge);
    for (const text of [
      '',
      '1:2',
      '1:2:3:4',
      'a:b:c',
      '-1:0:0',
      '1: 2:3',
      `${2n ** 64n}:0:0`,
      `0:${2 ** 32}:0`,
      '0x1:0:0',
    ]) {
      expect(parseMuxSlot(text), text).to.equal(undefined);
    }
  });
});
