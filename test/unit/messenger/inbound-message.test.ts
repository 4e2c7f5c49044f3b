import { expect } from 'chai';
import fc from 'fast-check';
import { InboundClassifier, type InboundMessage } from '../../../lib/messenger/inbound-message.js';
import { wireGeneration } from '../../../lib/messenger/response-origin.js';
import {
  encodeAckHeader,
  encodeRequestHeader,
  encodeResponseHeader,
  RESPONSE_ACK,
  RESPONSE_NONE,
  RESPONSE_UNARY,
} from '../../../lib/wire/envelope.js';
import { encodeHeaderMap } from '../../../lib/wire/header-map.js';
import { BATCH_HANDLERS } from '../../../lib/wire/names.js';
import type { ResponseId } from '../../../lib/wire/response-id.js';
import {
  FRAME_ACK,
  FRAME_EVENT,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  FRAME_SHUTTING_DOWN,
} from '../../../lib/wire/transport-frame.js';

const OWN_HI = 0xc56cde21;
const OWN_LO = 0xe711bf96;
const PEER: ResponseId = { workerHi: 0xffeeddcc, workerLo: 0xbbaa9988, slot: 7, generation: 3 };
const ownId = (slot: number, generation: number): ResponseId => ({
  workerHi: OWN_HI,
  workerLo: OWN_LO,
  slot,
  generation,
});

function classify(
  classifier: InboundClassifier,
  type: number,
  header: Uint8Array,
  payload = 5,
): InboundMessage | undefined {
  const pad = 3;
  const buffer = new Uint8Array(pad + header.length + payload);
  buffer.set(header, pad);
  return classifier.classify(type, buffer, pad, header.length, pad + header.length, payload);
}

describe('inbound messages', () => {
  let classifier: InboundClassifier;
  const noDrops = { badRequest: 0, badResponse: 0, badAck: 0, badRefusal: 0, foreignWorker: 0, event: 0 };

  beforeEach(() => {
    classifier = new InboundClassifier(OWN_HI, OWN_LO);
  });

  it('AL-01 knows the batch handlers of all 16 lanes and their sender', () => {
    for (const [lane, name] of BATCH_HANDLERS.entries()) {
      const message = classify(classifier, FRAME_MESSAGE, encodeRequestHeader(RESPONSE_NONE, PEER, name));
      expect(message).to.deep.include({ kind: 'batch', lane, senderHi: 0xffeeddcc, senderLo: 0xbbaa9988 });
      expect(message).to.deep.include({ payloadOffset: 3 + 22 + name.length, payloadLength: 5 });
    }
    expect(classifier.drops).to.deep.equal(noDrops);
  });

  it('a batch with headers, or one that wants an answer, is an ordinary request', () => {
    const map = encodeHeaderMap([['_rv', '18446744073709551617']]);
    const staged = classify(classifier, FRAME_MESSAGE, encodeRequestHeader(RESPONSE_NONE, PEER, '_stream_batch', map));
    expect(staged?.kind).to.equal('request');
    if (staged?.kind === 'request') {
      expect(staged.envelope.handler).to.equal('_stream_batch');
      expect(staged.envelope.headers?.get('_rv')).to.equal('18446744073709551617');
    }
    const asked = classify(classifier, FRAME_MESSAGE, encodeRequestHeader(RESPONSE_UNARY, PEER, '_stream_batch.3'));
    expect(asked?.kind).to.equal('request');
    for (const name of ['_stream_batch.16', '_stream_batch.03', '_stream_batch.', '_stream_batchx', '_stream']) {
      const other = classify(classifier, FRAME_MESSAGE, encodeRequestHeader(RESPONSE_NONE, PEER, name));
      expect(other?.kind, name).to.equal('request');
    }
  });

  it('a request keeps its kind, id, handler, headers and payload range', () => {
    const map = encodeHeaderMap([['k', 'v']]);
    const header = encodeRequestHeader(RESPONSE_ACK, PEER, 'ping', map);
    const message = classify(classifier, FRAME_MESSAGE, header);
    if (message?.kind !== 'request') throw new Error(`not a request: ${message?.kind}`);
    expect(message.envelope).to.deep.include({ responseType: RESPONSE_ACK, handler: 'ping', mapLength: map.length });
    expect(message.envelope.id).to.deep.equal(PEER);
    expect([...(message.envelope.headers ?? [])]).to.deep.equal([['k', 'v']]);
    expect([message.payloadOffset, message.payloadLength]).to.deep.equal([3 + header.length, 5]);
  });

  it('a response and an ack are both answers, with slot, generation and origin', () => {
    const id = ownId(65_534, wireGeneration(19, 2 ** 40 - 1));
    expect(classify(classifier, FRAME_RESPONSE, encodeResponseHeader(id, true))).to.deep.equal({
      kind: 'answer',
      via: 'response',
      slot: 65_534,
      generation: 19 * 2 ** 40 + 2 ** 40 - 1,
      origin: 19,
      ok: true,
      payloadOffset: 22,
      payloadLength: 5,
    });
    const failed = classify(classifier, FRAME_RESPONSE, encodeResponseHeader(id, false));
    expect(failed).to.deep.include({ via: 'response', ok: false });
    expect(classify(classifier, FRAME_ACK, encodeAckHeader(id, true))).to.deep.include({ via: 'ack', ok: true });
    const nacked = classify(classifier, FRAME_ACK, encodeAckHeader(id, false));
    expect(nacked).to.deep.include({ kind: 'answer', via: 'ack', ok: false, slot: 65_534, origin: 19 });
  });

  it('any outcome byte but 0 is an error', () => {
    const header = encodeResponseHeader(ownId(1, 1), true);
    header[16] = 7;
    expect(classify(classifier, FRAME_RESPONSE, header)).to.deep.include({ kind: 'answer', ok: false });
  });

  it('the flag decides between ack and event, whatever the frame type; events are dropped', () => {
    const id = ownId(1, 1);
    expect(classify(classifier, FRAME_EVENT, encodeAckHeader(id, true))).to.deep.include({
      kind: 'answer',
      via: 'ack',
    });
    expect(classify(classifier, FRAME_ACK, encodeAckHeader(id, true, true))).to.equal(undefined);
    expect(classify(classifier, FRAME_EVENT, encodeAckHeader(id, false, true))).to.equal(undefined);
    expect(classifier.drops).to.deep.equal({ ...noDrops, event: 2 });
  });

  it('the echo of a draining peer refuses the call that its header names', () => {
    const header = encodeRequestHeader(RESPONSE_UNARY, ownId(9, wireGeneration(16, 4)), 'ping');
    expect(classify(classifier, FRAME_SHUTTING_DOWN, header, 0)).to.deep.equal({
      kind: 'refused',
      slot: 9,
      generation: 16 * 2 ** 40 + 4,
      origin: 16,
    });
    // 18 bytes are enough: nothing behind the id is read
    expect(classify(classifier, FRAME_SHUTTING_DOWN, header.subarray(0, 18), 0)).to.deep.include({ kind: 'refused' });
    expect(classify(classifier, FRAME_SHUTTING_DOWN, header.subarray(0, 17), 0)).to.equal(undefined);
    const badSchema = header.slice();
    badSchema[0] = 2;
    const badKind = header.slice();
    badKind[1] = 3;
    expect(classify(classifier, FRAME_SHUTTING_DOWN, badSchema, 0)).to.equal(undefined);
    expect(classify(classifier, FRAME_SHUTTING_DOWN, badKind, 0)).to.equal(undefined);
    expect(classifier.drops).to.deep.equal({ ...noDrops, badRefusal: 3 });
  });

  it('answers that name another node are dropped', () => {
    expect(classify(classifier, FRAME_RESPONSE, encodeResponseHeader(PEER, true))).to.equal(undefined);
    expect(classify(classifier, FRAME_ACK, encodeAckHeader({ ...ownId(0, 0), workerHi: OWN_HI + 1 }, true))).to.equal(
      undefined,
    );
    const request = encodeRequestHeader(RESPONSE_UNARY, { ...ownId(0, 0), workerLo: 1 }, 'ping');
    expect(classify(classifier, FRAME_SHUTTING_DOWN, request)).to.equal(undefined);
    expect(classifier.drops).to.deep.equal({ ...noDrops, foreignWorker: 3 });
  });

  it('headers that do not decode are dropped and counted by kind', () => {
    const short = new Uint8Array(3);
    const badMap = encodeResponseHeader(ownId(0, 0), true, new Uint8Array([0xc1]));
    expect(classify(classifier, FRAME_MESSAGE, short)).to.equal(undefined);
    expect(classify(classifier, FRAME_RESPONSE, short)).to.equal(undefined);
    expect(classify(classifier, FRAME_RESPONSE, badMap)).to.equal(undefined);
    expect(classify(classifier, FRAME_ACK, short)).to.equal(undefined);
    const badFlags = encodeAckHeader(ownId(0, 0), true);
    badFlags[0] = 4;
    expect(classify(classifier, FRAME_ACK, badFlags)).to.equal(undefined);
    expect(classifier.drops).to.deep.equal({ ...noDrops, badRequest: 1, badResponse: 2, badAck: 2 });
  });

  it('never throws for bytes of a peer, and drops or understands every one of them', () => {
    let judged = 0;
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 4 }),
        fc.uint8Array({ maxLength: 80 }),
        fc.constantFrom(...BATCH_HANDLERS, 'ping', 'x'),
        fc.nat(90),
        fc.nat(255),
        (type, noise, name, at, value) => {
          const mutated = encodeRequestHeader(RESPONSE_UNARY, PEER, name);
          if (at < mutated.length) mutated[at] = value;
          const { drops } = classifier;
          for (const header of [noise, mutated]) {
            const before = Object.values(drops).reduce((sum, count) => sum + count, 0);
            const message = classify(classifier, type, header);
            const after = Object.values(drops).reduce((sum, count) => sum + count, 0);
            expect(after - before).to.equal(message === undefined ? 1 : 0);
            judged += 1;
          }
        },
      ),
      { numRuns: 500 },
    );
    expect(judged).to.equal(1_000);
  });
});
