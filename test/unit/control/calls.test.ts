// Calls at the end of their response slots, over a lane that only keeps what it is given.

import { expect } from 'chai';
import { type CallOptions, Calls } from '../../../lib/control/calls.js';
import { Outbox } from '../../../lib/control/outbox.js';
import type { Peer } from '../../../lib/control/peer-book.js';
import { Staging } from '../../../lib/control/staging.js';
import { VeloError } from '../../../lib/errors.js';
import type { ClientPlane } from '../../../lib/lanes/client-plane.js';
import { CMD_FRAME, CMD_STAGED_FRAME, readU32 } from '../../../lib/lanes/commands.js';
import { MAX_RESPONSE_SLOTS } from '../../../lib/messenger/response-table.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { REQUEST_ID_OFFSET, RESPONSE_ACK, RESPONSE_UNARY } from '../../../lib/wire/envelope.js';
import { type ResponseId, readResponseId } from '../../../lib/wire/response-id.js';
import { PREAMBLE_LEN } from '../../../lib/wire/transport-frame.js';

const PEER_BYTES = 4;
const STAGED_HEAD_BYTES = 8;
/** All that may be staged at once. */
const LARGE = 300_000;
const NO_BYTES = new Uint8Array(0);
const peer = { number: 0, info: { instanceId: 'somebody' } } as Peer;

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (VeloError.is(error)) return error.code;
    throw error;
  }
  return 'it resolved';
}

describe('calls when every response slot is taken', function () {
  this.timeout(60_000);
  let sent: { id: ResponseId; token: number; payload: number | undefined; staged: number }[];
  let staging: Staging;
  let calls: Calls;
  let held: Promise<string>[];

  const post = (kind: number, token: number, body: Uint8Array) => {
    if (kind !== CMD_FRAME && kind !== CMD_STAGED_FRAME) return;
    const head = kind === CMD_FRAME ? PEER_BYTES : STAGED_HEAD_BYTES;
    const id = readResponseId(body, head + PREAMBLE_LEN + REQUEST_ID_OFFSET);
    const staged = kind === CMD_FRAME ? 0 : readU32(body, PEER_BYTES);
    sent.push({ id, token, payload: body.at(-1), staged });
  };
  const call = (options: CallOptions = {}, payload = NO_BYTES) =>
    calls.call(peer, 'x', RESPONSE_UNARY, payload, options);
  const answer = ({ slot, generation }: ResponseId) =>
    calls.answered(
      { kind: 'answer', via: 'ack', slot, generation, origin: 0, ok: true, payloadOffset: 0, payloadLength: 0 },
      NO_BYTES,
    );
  const idAt = (n: number): ResponseId => sent[n]!.id;

  beforeEach(() => {
    sent = [];
    const plane = { port: () => ({ command: post, isOpen: true }) } as unknown as ClientPlane;
    staging = new Staging(plane, new NodeBlock(createNodeBlock(1, 1)), 1n, LARGE);
    calls = new Calls(new Outbox(plane, 1, 2, staging), 30_000);
    held = [];
    for (let i = 0; i < MAX_RESPONSE_SLOTS; i += 1) held.push(codeOf(call()));
    expect(calls.pending).to.equal(65_535);
  });
  afterEach(async () => {
    calls.failAll(new VeloError('ERR_CLOSED', 'over'));
    await Promise.all(held);
    expect(calls.pending).to.equal(0);
  });

  it('a call and a message fail at once, unless they wait', async () => {
    expect(await codeOf(call())).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
    expect(await codeOf(calls.fire(peer, 'x', NO_BYTES))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
    expect(sent).to.have.length(65_535);
  });

  it('calls that wait go out in order, each as a slot comes free, and get their own answers', async () => {
    const first = call({ awaitCapacity: true }, Uint8Array.of(1));
    const second = calls.call(peer, 'x', RESPONSE_ACK, Uint8Array.of(2), { awaitCapacity: true });
    const fired = calls.fire(peer, 'x', Uint8Array.of(3), { awaitCapacity: true });
    await settle();
    expect(sent).to.have.length(65_535);
    answer(idAt(7));
    await settle();
    expect(sent.slice(65_535).map(({ payload }) => payload)).to.deep.equal([1]);
    expect(idAt(65_535)).to.include({ slot: 7, generation: 1 });
    answer(idAt(9));
    answer(idAt(8));
    await settle();
    expect(sent.slice(65_536).map(({ payload }) => payload)).to.deep.equal([2, 3]);
    calls.admitted(sent[65_537]!.token, undefined);
    await fired;
    expect(calls.pending, 'a message that nobody answers keeps no slot').to.equal(65_534);
    answer(idAt(65_535));
    answer(idAt(65_536));
    expect((await first).length).to.equal(0);
    await second;
  });

  it('the timeout runs while a call waits, and leaves nothing', async () => {
    expect(await codeOf(call({ awaitCapacity: true, timeoutMs: 20 }))).to.equal('ERR_TIMEOUT');
    answer(idAt(0));
    await settle();
    expect([sent.length, calls.pending], 'the slot is free').to.deep.equal([65_535, 65_534]);
  });

  it('an abort ends the wait of a call and of a message', async () => {
    const abort = new AbortController();
    const waits = [
      codeOf(call({ awaitCapacity: true, signal: abort.signal })),
      codeOf(calls.fire(peer, 'x', NO_BYTES, { awaitCapacity: true, signal: abort.signal })),
    ];
    await settle();
    abort.abort();
    expect(await Promise.all(waits)).to.deep.equal(['ERR_ABORTED', 'ERR_ABORTED']);
    answer(idAt(0));
    await settle();
    expect([sent.length, calls.pending]).to.deep.equal([65_535, 65_534]);
  });

  it('a call that is given up in the moment it gets its slot gives it back', async () => {
    const abort = new AbortController();
    const waiting = codeOf(call({ awaitCapacity: true, signal: abort.signal }));
    answer(idAt(0));
    abort.abort();
    expect(await waiting).to.equal('ERR_ABORTED');
    await settle();
    expect([sent.length, calls.pending]).to.deep.equal([65_535, 65_534]);
  });

  it('what makes a frame impossible is told once the slot is there, and the slot given back', async () => {
    const waiting = codeOf(call({ awaitCapacity: true, headers: { k: 'v'.repeat(1_025) } }));
    answer(idAt(0));
    expect(await waiting).to.equal('ERR_INVALID_ARGUMENT');
    expect(calls.pending).to.equal(65_534);
  });

  it('the end of the node ends the waits', async () => {
    const waits = [
      codeOf(call({ awaitCapacity: true })),
      codeOf(calls.fire(peer, 'x', NO_BYTES, { awaitCapacity: true })),
    ];
    await settle();
    calls.failAll(new VeloError('ERR_CLOSED', 'over'));
    expect(await Promise.all(waits)).to.deep.equal(['ERR_CLOSED', 'ERR_CLOSED']);
    expect(calls.pending).to.equal(0);
  });

  it('what waits for a slot has its room already: large ones go out one by one, each as the one before is gone', async () => {
    const waits = [
      codeOf(call({ awaitCapacity: true }, new Uint8Array(LARGE))),
      codeOf(calls.fire(peer, 'x', new Uint8Array(LARGE), { awaitCapacity: true })),
      codeOf(call({ awaitCapacity: true }, new Uint8Array(LARGE))),
    ];
    const large = () => sent.filter(({ staged }) => staged > 0);
    for (const n of [0, 1, 2]) {
      await settle();
      expect(large()).to.have.length(n);
      answer(idAt(2 * n));
      answer(idAt(2 * n + 1));
      await settle();
      // There is a slot for the next one too, but no room.
      expect(large()).to.have.length(n + 1);
      const { token, id, staged } = large()[n]!;
      if (token === 0) answer(id);
      else calls.admitted(token, undefined);
      while (calls.pending < MAX_RESPONSE_SLOTS) held.push(codeOf(call()));
      staging.gone(staged);
    }
    expect(await Promise.all(waits)).to.deep.equal(waits.map(() => 'it resolved'));
    expect(staging.bytes).to.equal(0);
  });

  it('who gives up a wait for a slot gives its room back', async () => {
    expect(await codeOf(call({ awaitCapacity: true, timeoutMs: 20 }, new Uint8Array(LARGE)))).to.equal('ERR_TIMEOUT');
    const abort = new AbortController();
    const { signal } = abort;
    const fired = codeOf(calls.fire(peer, 'x', new Uint8Array(LARGE), { awaitCapacity: true, signal }));
    await settle();
    expect(staging.bytes).to.equal(LARGE);
    abort.abort();
    expect(await fired).to.equal('ERR_ABORTED');
    expect(staging.bytes).to.equal(0);
  });

  it('a timeout raises the generation: the late answer is counted, and nobody else gets it', async () => {
    answer(idAt(5));
    expect(await held[5]).to.equal('it resolved');
    expect(await codeOf(call({ timeoutMs: 5 }))).to.equal('ERR_TIMEOUT');
    const late = sent.at(-1)!.id;
    const next = codeOf(call());
    const id = sent.at(-1)!.id;
    expect([id.slot, id.generation]).to.deep.equal([late.slot, late.generation + 1]);
    answer(late);
    answer({ ...id, slot: 65_535 });
    answer({ ...id, generation: id.generation + 2 ** 40 });
    await settle();
    expect([calls.lateAnswers, calls.pending]).to.deep.equal([3, 65_535]);
    answer(id);
    answer(id);
    expect(await next).to.equal('it resolved');
    expect(calls.lateAnswers).to.equal(4);
  });
});
