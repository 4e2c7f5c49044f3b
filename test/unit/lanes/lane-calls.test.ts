// A lane's own calls, by themselves: whose answer ends which call, and what is written where.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { LaneCalls, MAX_REFUSAL_BYTES } from '../../../lib/lanes/lane-calls.js';
import type { OutFrame } from '../../../lib/lanes/out-frame.js';
import type { PeerLink } from '../../../lib/lanes/peer-link.js';
import type { InboundAnswer } from '../../../lib/messenger/inbound-message.js';
import { ORIGIN_MAIN, originOf, wireGeneration, workerOrigin } from '../../../lib/messenger/response-origin.js';
import { decodeRequestHeader, RESPONSE_NONE, RESPONSE_UNARY } from '../../../lib/wire/envelope.js';
import { PREAMBLE_LEN } from '../../../lib/wire/transport-frame.js';
import { failure } from '../../support/nodes.js';

const LANE = 3;
const SOON_MS = 20;
const LONG_MS = 60_000;
const PAYLOAD = Uint8Array.of(1, 2, 3);

describe('the calls of a lane', () => {
  let calls: LaneCalls;
  let frames: OutFrame[];
  const peer = {
    label: 'somebody',
    send: (frame: OutFrame) => {
      frames.push(frame);
      return true;
    },
  } as unknown as PeerLink;
  beforeEach(() => {
    calls = new LaneCalls(LANE, 0, 1, 2);
    frames = [];
  });
  afterEach(() => calls.close(new VeloError('ERR_CLOSED', 'the test is over')));

  const requestOf = ({ buffer }: OutFrame) => decodeRequestHeader(buffer, PREAMBLE_LEN, buffer.length - PREAMBLE_LEN);
  const answerTo = (frame: OutFrame, payloadLength: number, ok = true): InboundAnswer => {
    const { slot, generation } = requestOf(frame).id;
    const origin = originOf(generation);
    return { kind: 'answer', via: 'response', slot, generation, origin, ok, payloadOffset: 1, payloadLength };
  };

  it('a request is a whole frame, in the name of this lane', () => {
    void calls.call(peer, '_rv_pull', PAYLOAD, LONG_MS).catch(() => {});
    calls.fire(peer, '_rv_release', PAYLOAD);
    const [call, fire] = frames.map(requestOf);
    expect([call!.handler, call!.responseType, fire!.responseType]).to.deep.equal([
      '_rv_pull',
      RESPONSE_UNARY,
      RESPONSE_NONE,
    ]);
    expect([call!.id.workerHi, call!.id.workerLo, originOf(call!.id.generation)]).to.deep.equal([
      1,
      2,
      workerOrigin(LANE),
    ]);
    expect([...frames[0]!.buffer.subarray(-3)]).to.deep.equal([1, 2, 3]);
    expect(calls.pending).to.equal(1);
  });

  it('an answer to a lane that died finds no call of the one that took its place', async () => {
    void calls.call(peer, '_rv_pull', PAYLOAD, LONG_MS).catch(() => {});
    const next = new LaneCalls(LANE, 1, 1, 2);
    const answer = next.call(peer, '_rv_pull', PAYLOAD, LONG_MS);
    const [old, own] = frames.map((frame) => answerTo(frame, 2));
    expect(old!.slot, 'the same slot').to.equal(own!.slot);
    expect(next.answered(old!, new Uint8Array([0, 8, 9]))).to.equal(false);
    expect(next.answered(own!, new Uint8Array([0, 1, 2]))).to.equal(true);
    expect([...(await answer)]).to.deep.equal([1, 2]);
    next.close(new VeloError('ERR_CLOSED', 'the test is over'));
  });

  it('of a refusal no more is kept than a stream may end with, cut between two characters', async () => {
    const refusals = [
      'a'.repeat(MAX_REFUSAL_BYTES),
      'a'.repeat(1_000_000),
      `a${'ü'.repeat(500_000)}`,
      '\ud83d\ude00'.repeat(300),
    ];
    const texts = [];
    for (const text of refusals) {
      const call = failure('ERR_HANDLER_FAILED', calls.call(peer, '_rv_acquire', PAYLOAD, LONG_MS));
      const bytes = Buffer.from(` ${text}`);
      expect(calls.answered(answerTo(frames.at(-1)!, bytes.length - 1, false), bytes)).to.equal(true);
      texts.push((await call).message);
    }
    expect(texts).to.deep.equal([
      refusals[0],
      `${'a'.repeat(MAX_REFUSAL_BYTES)}…`,
      `a${'ü'.repeat(511)}…`,
      `${'\ud83d\ude00'.repeat(256)}…`,
    ]);
  });

  it('an answer is copied at once, to its place or to memory of its own, and ends its call once', async () => {
    const buffer = Buffer.from([9, 4, 5, 6, 9]);
    const target = new Uint8Array(3);
    const placed = calls.call(peer, 'a', PAYLOAD, LONG_MS, target);
    const loose = calls.call(peer, 'b', PAYLOAD, LONG_MS);
    expect(calls.answered(answerTo(frames[0]!, 3), buffer)).to.equal(true);
    expect(calls.answered(answerTo(frames[1]!, 3), buffer)).to.equal(true);
    expect(calls.answered(answerTo(frames[1]!, 3), buffer)).to.equal(false);
    buffer.fill(0);
    expect(await placed).to.equal(target);
    expect([...target]).to.deep.equal([4, 5, 6]);
    expect([...(await loose)]).to.deep.equal([4, 5, 6]);
  });

  it('an answer of the wrong length is not written', async () => {
    const target = new Uint8Array(3);
    for (const length of [2, 4]) {
      const call = failure('ERR_BAD_CONTROL_MESSAGE', calls.call(peer, 'a', PAYLOAD, LONG_MS, target));
      calls.answered(answerTo(frames.at(-1)!, length), new Uint8Array(9).fill(7));
      await call;
    }
    expect([...target]).to.deep.equal([0, 0, 0]);
  });

  it('ends by its timeout, by a failed write, by a refused admission, by a refusal, by an error, and by the end of the lane', async () => {
    const lost = new VeloError('ERR_CONNECTION_CLOSED', 'lost');
    const late = failure('ERR_TIMEOUT', calls.call(peer, 'a', PAYLOAD, SOON_MS));
    const unwritten = failure('ERR_CONNECTION_CLOSED', calls.call(peer, 'b', PAYLOAD, LONG_MS));
    const unadmitted = failure('ERR_CONNECTION_CLOSED', calls.call(peer, 'c', PAYLOAD, LONG_MS));
    const refused = failure('ERR_PEER_SHUTTING_DOWN', calls.call(peer, 'd', PAYLOAD, LONG_MS));
    const failed = failure('ERR_HANDLER_FAILED', calls.call(peer, 'e', PAYLOAD, LONG_MS));
    const closed = failure('ERR_CLOSED', calls.call(peer, 'f', PAYLOAD, LONG_MS));
    frames[1]!.onAdmitted(true);
    frames[1]!.onWritten(false, lost);
    frames[2]!.onAdmitted(false, lost);
    const { slot, generation } = requestOf(frames[3]!).id;
    expect(calls.refused({ kind: 'refused', slot, generation, origin: originOf(generation) })).to.equal(true);
    calls.answered(answerTo(frames[4]!, 2, false), new TextEncoder().encode('-no-'));
    expect((await failed).message).to.equal('no');
    await Promise.all([late, unwritten, unadmitted, refused]);
    expect(calls.pending).to.equal(1);
    calls.close(new VeloError('ERR_CLOSED', 'over'));
    await closed;
    await failure('ERR_CLOSED', calls.call(peer, 'g', PAYLOAD, LONG_MS));
    expect(frames).to.have.length(6);
  });

  it('no request has the slot that batches name: the refusal of a batch ends no call', () => {
    for (let i = 0; i < 5_000; i++) calls.fire(peer, '_rv_release', PAYLOAD);
    void calls.call(peer, 'a', PAYLOAD, LONG_MS).catch(() => {});
    expect(frames.filter((frame) => requestOf(frame).id.slot === 0)).to.have.length(0);
    const origin = workerOrigin(LANE);
    for (const generation of [0, 1, 2])
      calls.refused({ kind: 'refused', origin, slot: 0, generation: wireGeneration(origin, generation) });
    for (let i = 0; i < 5_000; i++) calls.fire(peer, '_rv_release', PAYLOAD);
    expect(
      frames.filter((frame) => requestOf(frame).id.slot === 0),
      'nobody can free it',
    ).to.have.length(0);
    expect(calls.refused({ kind: 'refused', origin: ORIGIN_MAIN, slot: 1, generation: 0 })).to.equal(false);
    expect(calls.pending).to.equal(1);
  });
});
