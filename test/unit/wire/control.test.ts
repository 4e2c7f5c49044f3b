// Control messages: vectors in both encodings, defaults, forward compatibility, refusals that name the field.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import {
  type AttachRequest,
  abortAttach,
  anchorAttachRequest,
  anchorAttachResponse,
  anchorReference,
  mpscAttachRequest,
  mpscAttachResponse,
  mpscDetach,
  type StreamOpenTicket,
  streamOpenTicket,
  streamSignal,
} from '../../../lib/wire/control.js';
import { DataHandle, StreamAnchorHandle, StreamCancelHandle } from '../../../lib/wire/handle.js';
import {
  decodeHandlerList,
  decodeHello,
  encodeHandlerList,
  encodeHello,
  expectNull,
  JSON_NULL,
} from '../../../lib/wire/hello.js';
import { encodeJson, type JsonObject, parseJson, stringifyJson } from '../../../lib/wire/json.js';
import type { MsgpackForm } from '../../../lib/wire/message-codec.js';
import { PeerInfo } from '../../../lib/wire/peer-info.js';
import {
  dataLease,
  dataMetadata,
  dataReference,
  decodeDataReady,
  encodeDataReady,
  pullRequest,
} from '../../../lib/wire/rendezvous-messages.js';
import { decodeStreamHandshake, encodeStreamHandshake } from '../../../lib/wire/stream-handshake.js';
import { encodeUtf8 } from '../../../lib/wire/utf8.js';
import { codeOf, fromHex, loadVectors, toHex, veloErrorOf } from '../../support/vectors.js';

interface ControlVector {
  name: string;
  codec: keyof typeof codecs;
  value: Record<string, unknown>;
  json?: string;
  msgpack: string;
}

/** What every message codec can do, whatever its message. */
interface AnyCodec {
  encodeJson(message: never): Uint8Array;
  decodeJson(bytes: Uint8Array | string): unknown;
  encodeMsgpack(message: never, form?: MsgpackForm): Uint8Array;
  decodeMsgpack(bytes: Uint8Array): unknown;
}

const codecs = {
  abortAttach,
  anchorAttachRequest,
  anchorAttachResponse,
  mpscAttachRequest,
  mpscAttachResponse,
  anchorReference,
  mpscDetach,
  streamSignal,
  streamOpenTicket,
};

const U64_FIELDS = ['sessionId', 'laneKey', 'routingSessionId', 'senderId', 'senderStreamId'];

/** The message a vector stands for: handles as classes, u64 as bigint. */
function revive(value: Record<string, unknown>): Record<string, unknown> {
  const message: Record<string, unknown> = {};
  for (const [key, member] of Object.entries(value)) {
    const halves = member as { hi: string; lo: string };
    if (key === 'handle') message[key] = new StreamAnchorHandle(BigInt(halves.hi), BigInt(halves.lo));
    else if (key === 'streamCancelHandle') message[key] = new StreamCancelHandle(BigInt(halves.hi), BigInt(halves.lo));
    else if (U64_FIELDS.includes(key)) message[key] = BigInt(member as string);
    else if (key === 'value') message[key] = revive(member as Record<string, unknown>);
    else message[key] = member;
  }
  return message;
}

/** Decoded messages hold an explicit undefined for an absent optional field. */
function withoutUndefined(message: unknown): unknown {
  return Object.fromEntries(Object.entries(message as object).filter(([, value]) => value !== undefined));
}

const vectors = loadVectors<ControlVector>('control');

function vectorOf(name: string): { message: never; vector: ControlVector; codec: AnyCodec } {
  const vector = vectors.find((candidate) => candidate.name === name)!;
  return { message: revive(vector.value) as never, vector, codec: codecs[vector.codec] };
}

const TICKET: StreamOpenTicket = {
  streamingTransportKey: 'messenger-mux-v2',
  heartbeatIntervalMs: 5000,
  routingSessionId: 77n,
  initialCredit: 32,
  slotByteBudget: 1_048_576,
  lane: 0,
};

describe('wire/control', () => {
  for (const vector of vectors) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const { message, codec } = vectorOf(vector.name);
      expect(toHex(codec.encodeMsgpack(message))).to.equal(vector.msgpack);
      expect(withoutUndefined(codec.decodeMsgpack(fromHex(vector.msgpack)))).to.deep.equal(message);
      expect(withoutUndefined(codec.decodeMsgpack(codec.encodeMsgpack(message, 'named')))).to.deep.equal(message);
      expect(withoutUndefined(codec.decodeJson(codec.encodeJson(message)))).to.deep.equal(message);
      if (vector.json === undefined) return;
      expect(new TextDecoder().decode(codec.encodeJson(message))).to.equal(vector.json);
      expect(withoutUndefined(codec.decodeJson(vector.json))).to.deep.equal(message);
    });
  }

  it('AN-23 lane-0 messages are the bytes of before lanes in all three encodings', () => {
    for (const name of ['attach request', 'attach accepted on the mux, lane 0', 'ticket, lane 0']) {
      const { message, vector, codec } = vectorOf(name);
      expect(new TextDecoder().decode(codec.encodeJson(message))).to.equal(vector.json);
      expect(vector.json).to.not.include('lane');
      expect(toHex(codec.encodeMsgpack(message))).to.equal(vector.msgpack);
      expect(toHex(codec.encodeMsgpack(message, 'named'))).to.not.include(toHex(encodeUtf8('lane')));
    }
    const named = toHex(streamOpenTicket.encodeMsgpack(TICKET, 'named'));
    const text = (value: string): string => toHex(Uint8Array.of(0xa0 | value.length, ...encodeUtf8(value)));
    expect(named).to.equal(
      [
        '85',
        `${text('streaming_transport_key')}${text('messenger-mux-v2')}`,
        `${text('heartbeat_interval_ms')}cd1388`,
        `${text('routing_session_id')}4d`,
        `${text('initial_credit')}20`,
        `${text('slot_byte_budget')}ce00100000`,
      ].join(''),
    );
    const accepted = parseJson(vectorOf('attach accepted on the mux, lane 0').vector.json!) as { Ok: JsonObject };
    expect(Object.keys(accepted.Ok)).to.have.length(5);
  });

  it('AN-24 a lane-3 ticket keeps its lane in all three encodings, an old ticket reads as lane 0', () => {
    const ticket = { ...TICKET, lane: 3 };
    expect(streamOpenTicket.decodeJson(streamOpenTicket.encodeJson(ticket))).to.deep.equal(ticket);
    expect(streamOpenTicket.decodeMsgpack(streamOpenTicket.encodeMsgpack(ticket))).to.deep.equal(ticket);
    expect(streamOpenTicket.decodeMsgpack(streamOpenTicket.encodeMsgpack(ticket, 'named'))).to.deep.equal(ticket);
    const old = vectorOf('ticket, lane 0').vector;
    expect(streamOpenTicket.decodeJson(old.json!).lane).to.equal(0);
    expect(streamOpenTicket.decodeMsgpack(fromHex(old.msgpack)).lane).to.equal(0);
  });

  it('AN-25 a ticket without one of its terms is refused, naming the field', () => {
    const object = streamOpenTicket.toJSON(TICKET);
    for (const field of Object.keys(object)) {
      const { [field]: _, ...rest } = object;
      const error = veloErrorOf(() => streamOpenTicket.decodeJson(encodeJson(rest)));
      expect(error.code).to.equal('ERR_BAD_CONTROL_MESSAGE');
      expect(error.message).to.include(field);
    }
    const cut = fromHex(`94${vectorOf('ticket, lane 0').vector.msgpack.slice(2, -10)}`);
    const error = veloErrorOf(() => streamOpenTicket.decodeMsgpack(cut));
    expect([error.code, error.message.includes('slot_byte_budget')]).to.deep.equal(['ERR_BAD_CONTROL_MESSAGE', true]);
  });

  it('fills in what older peers leave out of an attach', () => {
    const request = '{"handle":{"hi":1,"lo":2},"session_id":9,"stream_cancel_handle":{"hi":3,"lo":9}}';
    const decoded = anchorAttachRequest.decodeJson(request);
    expect([decoded.supportedTransportKeys, decoded.laneKey]).to.deep.equal([[], undefined]);
    const nil = anchorAttachRequest.decodeJson(`${request.slice(0, -1)},"lane_key":null}`);
    expect(nil.laneKey).to.equal(undefined);
    expect(anchorAttachRequest.decodeMsgpack(fromHex('93920102099203 09'.replace(' ', ''))).sessionId).to.equal(9n);
    const accepted = anchorAttachResponse.decodeJson('{"Ok":{"streaming_transport_key":"tcp-stream"}}');
    expect(accepted).to.deep.equal({
      ok: true,
      value: {
        streamingTransportKey: 'tcp-stream',
        heartbeatIntervalMs: 5000,
        routingSessionId: 0n,
        initialCredit: 0,
        slotByteBudget: 0,
        lane: 0,
      },
    });
    const mpsc = veloErrorOf(() =>
      mpscAttachResponse.decodeJson('{"Ok":{"streaming_transport_key":"x","sender_id":1}}'),
    );
    expect(mpsc.message).to.include('heartbeat_interval_ms');
  });

  it('ignores members and elements it does not know', () => {
    const json = `{"future":{"a":[1]},"sender_stream_id":9,"z":null}`;
    expect(streamSignal.decodeJson(json)).to.deep.equal({ senderStreamId: 9n });
    expect(streamSignal.decodeMsgpack(fromHex('930991c0a0'))).to.deep.equal({ senderStreamId: 9n });
    const longer = fromHex(`98${vectorOf('ticket, lane 3').vector.msgpack.slice(2)}80a161`);
    expect(streamOpenTicket.decodeMsgpack(longer)).to.deep.equal({ ...TICKET, lane: 3 });
  });

  it('refuses wrong types and shapes, naming the field', () => {
    const good = parseJson(vectorOf('attach request with lane key 7').vector.json!) as JsonObject;
    const bad: [string, JsonObject][] = [
      ['handle', { handle: null }],
      ['handle', { handle: { hi: 1 } }],
      ['handle', { handle: { hi: '1', lo: 1 } }],
      ['session_id', { session_id: -1 }],
      ['session_id', { session_id: 2n ** 64n }],
      ['session_id', { session_id: '9' }],
      ['supported_transport_keys', { supported_transport_keys: 'tcp-stream' }],
      ['supported_transport_keys', { supported_transport_keys: [1] }],
      ['supported_transport_keys', { supported_transport_keys: null }],
      ['lane_key', { lane_key: 1.5 }],
    ];
    for (const [field, change] of bad) {
      const error = veloErrorOf(() => anchorAttachRequest.decodeJson(stringifyJson({ ...good, ...change })));
      expect([error.code, error.message.includes(field)], field).to.deep.equal(['ERR_BAD_CONTROL_MESSAGE', true]);
    }
    for (const text of ['null', '[]', '9', '{"Ok":1}', '{"Nope":{}}', '{"Err":{}}', '{"Err":{"reason":1}}']) {
      expect(
        codeOf(() => anchorAttachResponse.decodeJson(text)),
        text,
      ).to.equal('ERR_BAD_CONTROL_MESSAGE');
    }
    for (const hex of [
      '',
      'c0',
      '80',
      '81a24f6b',
      '81a24f6bc0',
      '81a34572729101',
      '82a24f6b90a24f6b90',
      '81a2587891a0',
    ]) {
      expect(
        codeOf(() => anchorAttachResponse.decodeMsgpack(fromHex(hex))),
        hex,
      ).to.equal('ERR_BAD_CONTROL_MESSAGE');
    }
    expect(codeOf(() => streamSignal.decodeJson('{'))).to.equal('ERR_BAD_JSON');
    expect(codeOf(() => streamSignal.decodeMsgpack(fromHex('9109ff')))).to.equal('ERR_BAD_CONTROL_MESSAGE');
    expect(
      codeOf(() => streamOpenTicket.decodeJson(encodeJson({ ...streamOpenTicket.toJSON(TICKET), lane: 65_536 }))),
    ).to.equal('ERR_BAD_CONTROL_MESSAGE');
  });

  it('refuses to write what no peer could read, naming the field', () => {
    for (const [field, value] of [
      ['initialCredit', 2 ** 32],
      ['lane', -1],
      ['lane', 1.5],
      ['routingSessionId', 2n ** 64n],
      ['streamingTransportKey', 7],
      ['heartbeatIntervalMs', 2 ** 53],
    ] as const) {
      const error = veloErrorOf(() => streamOpenTicket.encodeJson({ ...TICKET, [field]: value } as StreamOpenTicket));
      expect([error.code, error.message.includes(field)], field).to.deep.equal(['ERR_INVALID_ARGUMENT', true]);
    }
  });

  it('caps an interval that no timer could hold', () => {
    const json = encodeJson({ ...streamOpenTicket.toJSON(TICKET), heartbeat_interval_ms: 2n ** 64n - 1n });
    expect(streamOpenTicket.decodeJson(json).heartbeatIntervalMs).to.equal(Number.MAX_SAFE_INTEGER);
  });

  it('an attach request survives all three encodings with 64-bit values', () => {
    const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    fc.assert(
      fc.property(u64, u64, u64, fc.option(u64, { nil: undefined }), fc.array(fc.string()), (a, b, c, key, keys) => {
        const request: AttachRequest = {
          handle: new StreamAnchorHandle(a, b),
          sessionId: c,
          streamCancelHandle: new StreamCancelHandle(b, a),
          supportedTransportKeys: keys,
          laneKey: key,
        };
        expect(anchorAttachRequest.decodeJson(anchorAttachRequest.encodeJson(request))).to.deep.equal(request);
        for (const form of ['positional', 'named'] as const) {
          const bytes = mpscAttachRequest.encodeMsgpack(request, form);
          expect(mpscAttachRequest.decodeMsgpack(bytes)).to.deep.equal(request);
        }
      }),
      { numRuns: 100 },
    );
  });

  it('mutated messages give a value or a coded error', () => {
    const texts = vectors.flatMap((vector) =>
      vector.json === undefined ? [] : [[vector, encodeUtf8(vector.json)] as const],
    );
    const packed = vectors.map((vector) => [vector, fromHex(vector.msgpack)] as const);
    const change = fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 }), fc.nat());
    const mutate = (seed: Uint8Array, at: number, value: number, cut: number): Uint8Array => {
      const bytes = seed.slice();
      bytes[at % bytes.length] = value;
      return cut % 4 === 0 ? bytes.slice(0, cut % (bytes.length + 1)) : bytes;
    };
    const coded = (error: unknown): void => {
      expect(VeloError.is(error)).to.equal(true);
      expect(['ERR_BAD_JSON', 'ERR_BAD_CONTROL_MESSAGE']).to.include((error as VeloError).code);
    };
    fc.assert(
      fc.property(fc.constantFrom(...texts), fc.constantFrom(...packed), change, (text, pack, [at, value, cut]) => {
        try {
          (codecs[text[0].codec] as AnyCodec).decodeJson(mutate(text[1], at, value, cut));
        } catch (error) {
          coded(error);
        }
        try {
          (codecs[pack[0].codec] as AnyCodec).decodeMsgpack(mutate(pack[1], at, value, cut));
        } catch (error) {
          coded(error);
        }
      }),
      { numRuns: 1500 },
    );
  });
});

describe('wire/hello', () => {
  const peer = new PeerInfo('00112233-4455-6677-8899-aabbccddeeff', fromHex('80'));

  it('carries a PeerInfo and a list of names', () => {
    expect(decodeHello(encodeHello(peer))).to.deep.equal(peer);
    expect(decodeHandlerList(encodeHandlerList(['_hello', 'ping']))).to.deep.equal(['_hello', 'ping']);
  });

  it('reads nothing and null as the request for the list, and refuses an object', () => {
    expect(toHex(JSON_NULL)).to.equal('6e756c6c');
    expectNull(JSON_NULL);
    expectNull(new Uint8Array(0));
    expect(codeOf(() => expectNull(encodeUtf8('{}')))).to.equal('ERR_BAD_CONTROL_MESSAGE');
    expect(codeOf(() => decodeHello(encodeUtf8('{}')))).to.equal('ERR_BAD_ADDRESS');
    expect(codeOf(() => decodeHello(new Uint8Array(0)))).to.equal('ERR_BAD_CONTROL_MESSAGE');
    expect(codeOf(() => decodeHandlerList(encodeUtf8('{"handlers":[1]}')))).to.equal('ERR_BAD_CONTROL_MESSAGE');
  });
});

describe('wire/rendezvous-messages', () => {
  const handle = new DataHandle(0xc56cde21e711bf96n, 1n);
  const payloads = loadVectors<{ name: string; payload: string }>('messages');
  const payloadOf = (name: string): Uint8Array => fromHex(payloads.find((vector) => vector.name === name)!.payload);

  it('vectors, encoded and decoded: acquire, ready, pull, release', () => {
    expect(dataReference.encodeJson({ handle })).to.deep.equal(payloadOf('acquire'));
    expect(dataReference.decodeJson(payloadOf('acquire')).handle.equals(handle)).to.equal(true);
    const ready = { leaseId: 1n, transferId: 1n, totalLength: 300_000n, chunkSize: 524_288, chunkCount: 1 };
    expect(encodeDataReady(ready)).to.deep.equal(payloadOf('acquire answered'));
    expect(decodeDataReady(payloadOf('acquire answered'))).to.deep.equal(ready);
    expect(pullRequest.encodeJson({ transferId: 1n, chunkIndex: 0 })).to.deep.equal(payloadOf('pull'));
    expect(pullRequest.decodeJson(payloadOf('pull'))).to.deep.equal({ transferId: 1n, chunkIndex: 0 });
    expect(dataLease.encodeJson({ handle, leaseId: 1n })).to.deep.equal(payloadOf('release'));
    expect(dataLease.decodeJson(payloadOf('release')).leaseId).to.equal(1n);
    const metadata = { totalLength: 2n ** 60n, refcount: 1, pinned: false };
    expect(dataMetadata.decodeJson(dataMetadata.encodeJson(metadata))).to.deep.equal(metadata);
  });

  it('vectors: handler list and hello', () => {
    expect(encodeHandlerList(['_hello', '_list_handlers', 'ping'])).to.deep.equal(payloadOf('handler list'));
    const hello = decodeHello(payloadOf('hello of A'));
    expect(hello.instanceId).to.equal('00112233-4455-6677-8899-aabbccddeeff');
    expect(encodeHello(hello)).to.deep.equal(payloadOf('hello of A'));
    const event = parseJson(payloadOf('event subscription')) as JsonObject;
    expect(event.handle).to.equal(262423188611324055734162540089877463040n);
    expect(encodeJson(event)).to.deep.equal(payloadOf('event subscription'));
  });

  it('refuses an answer whose chunks do not cover its length', () => {
    const ready = { leaseId: 1n, transferId: 1n, totalLength: 1000n, chunkSize: 400, chunkCount: 3 };
    expect(decodeDataReady(encodeDataReady(ready))).to.deep.equal(ready);
    const empty = { ...ready, totalLength: 0n, chunkCount: 0 };
    expect(decodeDataReady(encodeDataReady(empty))).to.deep.equal(empty);
    for (const change of [
      { chunkCount: 2 },
      { chunkCount: 4 },
      { chunkSize: 0 },
      { totalLength: 2n ** 63n },
      { totalLength: 0n },
    ]) {
      expect(codeOf(() => decodeDataReady(encodeDataReady({ ...ready, ...change })))).to.equal(
        'ERR_BAD_CONTROL_MESSAGE',
      );
    }
    expect(codeOf(() => decodeDataReady(encodeUtf8('{"Rdma":{}}')))).to.equal('ERR_BAD_CONTROL_MESSAGE');
  });
});

describe('wire/stream-handshake', () => {
  it('vector, encoded and decoded: 16 bytes of anchor and session', () => {
    const vector = loadVectors<{ name: string; anchor?: string; session?: string; hex: string }>('stream-path')[0]!;
    const handshake = { anchorId: BigInt(vector.anchor!), routingSessionId: BigInt(vector.session!) };
    expect(toHex(encodeStreamHandshake(handshake))).to.equal(vector.hex);
    expect(decodeStreamHandshake(fromHex(vector.hex))).to.deep.equal(handshake);
    expect(codeOf(() => decodeStreamHandshake(new Uint8Array(15)))).to.equal('ERR_BAD_FRAME');
  });
});
