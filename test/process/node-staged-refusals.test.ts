// Staged batches that a node refuses: a foreign node states more bytes than is allowed, or its payload cannot be had. The stream that
// the message names ends with an error that says why, and nothing else does.

import { expect } from 'chai';
import { rawCodec, type StreamAnchor, type Velo, type VeloError } from '../../lib/index.js';
import { MAX_WAITING_PER_PEER } from '../../lib/lanes/staged-batches.js';
import { LIFECYCLE_CANCEL, RECORD_CLOSE_SLOT, RECORD_LIFECYCLE } from '../../lib/wire/batch.js';
import { FINALIZED_BYTES } from '../../lib/wire/frame.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { failure, range, readAll, streamSuite, until } from '../support/nodes.js';
import { batchBytes, StagingPeer } from '../support/staging-peer.js';
import { dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const MAX_BYTES = 1_000;
const FIRST = 0x100;
const SECOND = 0x200;
const EPOCH = 1n;
const ITEM = Uint8Array.from([0x81, 0xa4, 0x49, 0x74, 0x65, 0x6d, 0xc4, 0x01, 0x07]);
/** Longer than any test: a stream that ends earlier was not ended by its watchdog. */
const HEARTBEAT_MS = 60_000;

interface Attached {
  readonly anchor: StreamAnchor<Uint8Array>;
  readonly session: bigint;
}

streamSuite('staged batches that are refused', (host, nodes) => {
  let peer: WirePeer;
  let staging: StagingPeer;
  let node: Velo;

  beforeEach(async () => {
    peer = await WirePeer.listen();
    staging = new StagingPeer(peer);
    node = await nodes.make({
      host,
      stagedPayloadMax: MAX_BYTES,
      heartbeatIntervalMs: HEARTBEAT_MS,
      callTimeoutMs: 10_000,
    });
    await peer.faces(node).hello();
  });
  afterEach(() => peer.close());

  const attach = async (from = peer): Promise<Attached> => {
    const anchor = node.createAnchor({ codec: rawCodec() });
    const answer = await from.attach(anchor.handle);
    if (!answer.ok) throw new Error(answer.reason);
    return { anchor, session: answer.value.routingSessionId };
  };
  const open = async (slot: number, from = peer): Promise<Attached> => {
    const attached = await attach(from);
    await from.batch(0, (batch) => openRecord(batch, slot, attached.anchor.handle.local, attached.session));
    return attached;
  };
  const nameOf = (slot: number, { session }: Attached, epoch = EPOCH) => `${epoch}:${slot}:${session}`;
  const large = (slot: number, frameSeq: number) =>
    batchBytes(EPOCH, 1_000, 0, 2_000, (batch) => dataRecord(batch, slot, frameSeq, new Uint8Array(2_000).fill(1)));
  const cancelled = (session: bigint) =>
    recordsOf(peer, RECORD_LIFECYCLE).filter((r) => r.session === session && r.action === LIFECYCLE_CANCEL);
  /** The end of a stream that was refused, and what its sender heard. */
  const endsWith = async (refused: Attached, slot: number): Promise<VeloError> => {
    const { error } = await readAll(refused.anchor);
    expect(error?.code).to.equal('ERR_TRANSPORT');
    await until('its sender hears', () => cancelled(refused.session).length > 0);
    expect(cancelled(refused.session).map((r) => r.slot)).to.deep.equal([slot]);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT).filter((r) => r.slot === slot)).to.deep.equal([]);
    return error!;
  };
  const goesOn = async (kept: Attached, slot: number): Promise<void> => {
    await peer.batch(0, (batch) => {
      dataRecord(batch, slot, 1, ITEM);
      dataRecord(batch, slot, 2, FINALIZED_BYTES);
      batch.closeSlot(slot, 3, 0);
    });
    const { items, error } = await readAll(kept.anchor);
    expect([items.length, error]).to.deep.equal([1, undefined]);
  };

  it('AX-01 AX-03 AX-04 one that states more than stagedPayloadMax is never pulled; both sizes are named', async () => {
    const refused = await open(FIRST);
    const kept = await open(SECOND);
    await peer.batch(0, (batch) => dataRecord(batch, FIRST, 1, ITEM));
    // It states far more memory than this machine has.
    staging.stated.set(1, 2 ** 45);
    await staging.send(1, large(FIRST, 2), { muxSlot: nameOf(FIRST, refused) });
    const error = await endsWith(refused, FIRST);
    expect(error.message)
      .to.include(`${2 ** 45} bytes`)
      .and.include(`stagedPayloadMax = ${MAX_BYTES}`);
    expect(staging.pulls).to.deep.equal([]);
    expect(node.stats().droppedStagedBatch).to.equal(1);
    await until('the lease is given back', () => staging.count('_rv_release') === 1);
    await goesOn(kept, SECOND);
  });

  it('AX-05 what came in front of the error is read first; what is missing is not waited for, nor what is held', async () => {
    const refused = await open(FIRST);
    await peer.batch(0, (batch) => {
      dataRecord(batch, FIRST, 1, ITEM);
      dataRecord(batch, FIRST, 4, FINALIZED_BYTES);
      batch.closeSlot(FIRST, 5, 0);
    });
    await until('the terminal is held', () => node.stats().heldRecords === 1);
    await staging.send(1, large(FIRST, 3), { muxSlot: nameOf(FIRST, refused) });
    const { items, error } = await readAll(refused.anchor);
    expect([items.length, error?.code]).to.deep.equal([1, 'ERR_TRANSPORT']);
    await until('nothing is held', () => node.stats().heldRecords + node.stats().liveSlots === 0);
  });

  it('AX-07 one that beats its OpenSlot ends the stream when that comes', async () => {
    const refused = await attach();
    await staging.send(1, large(FIRST, 1), { muxSlot: nameOf(FIRST, refused, 6n) });
    await until('it was refused', () => staging.count('_rv_release') === 1);
    // An answer on the same connection: whatever the refusal did is done.
    await peer.hello();
    expect(node.stats().liveSlots).to.equal(0);
    await peer.batch(0, (batch) => openRecord(batch, FIRST, refused.anchor.handle.local, refused.session), {
      epoch: 6n,
    });
    expect((await endsWith(refused, FIRST)).message).to.include(`stagedPayloadMax = ${MAX_BYTES}`);
  });

  it('AX-06 AX-09 a stale name, one of no stream, and one of another peer end nothing', async () => {
    const forger = await WirePeer.listen();
    try {
      await forger.faces(node).hello();
      const forged = new StagingPeer(forger);
      const [running, waiting] = [await open(FIRST), await attach()];
      const names = [
        nameOf(FIRST, running, 0n),
        nameOf(FIRST + 1, running),
        nameOf(FIRST, waiting),
        `${EPOCH}:${FIRST}:${2n ** 64n - 1n}`,
      ];
      for (const [i, muxSlot] of names.entries()) await staging.send(i + 1, large(FIRST, 1), { muxSlot });
      await until('all were refused', () => staging.count('_rv_release') === names.length);
      // In the forger's own name: a stream that runs, and one that is about to.
      await forged.send(1, large(FIRST, 1), { muxSlot: nameOf(FIRST, running) });
      await forged.send(2, large(FIRST, 1), { muxSlot: nameOf(SECOND, waiting) });
      await until('those too', () => forged.count('_rv_release') === 2);
      await Promise.all([peer.hello(), forger.hello()]);
      await peer.batch(0, (batch) => openRecord(batch, SECOND, waiting.anchor.handle.local, waiting.session));
      await goesOn(running, FIRST);
      await goesOn(waiting, SECOND);
    } finally {
      await forger.close();
    }
  });

  it('AX-08 a refusal of another peer on the same bind neither replaces nor blocks the one that counts', async () => {
    const forger = await WirePeer.listen();
    try {
      await forger.faces(node).hello();
      const forged = new StagingPeer(forger);
      const refused = await attach();
      await forged.send(1, large(FIRST, 1), { muxSlot: nameOf(SECOND, refused, 9n) });
      await until('the forged one was refused', () => forged.count('_rv_release') === 1);
      await staging.send(1, large(FIRST, 1), { muxSlot: nameOf(FIRST, refused) });
      await until('the true one was refused', () => staging.count('_rv_release') === 1);
      await forged.send(2, large(FIRST, 1), { muxSlot: nameOf(SECOND, refused, 10n) });
      await until('and the next forged one', () => forged.count('_rv_release') === 2);
      await Promise.all([peer.hello(), forger.hello()]);
      await peer.batch(0, (batch) => openRecord(batch, FIRST, refused.anchor.handle.local, refused.session));
      await endsWith(refused, FIRST);
    } finally {
      await forger.close();
    }
  });

  it('one that nobody can be asked for, or whose owner refuses it, ends its stream too, and says why', async () => {
    const stranger = new DataHandle(peer.workerId + 1n, 1n).toText();
    const cases: [reason: RegExp, handle: string | undefined][] = [
      [/not registered/, stranger],
      [/invalid rendezvous handle/, 'none'],
      [/rendezvous handle not found/, undefined],
    ];
    for (const [i, [reason, handle]] of cases.entries()) {
      const slot = (i + 1) << 8;
      const refused = await open(slot);
      await staging.send(90 + i, undefined, { muxSlot: nameOf(slot, refused), ...(handle && { handle }) });
      expect((await endsWith(refused, slot)).message).to.match(reason);
    }
  });

  it('one that does not come in time ends its stream', async () => {
    node = await nodes.make({ host, heartbeatIntervalMs: HEARTBEAT_MS, callTimeoutMs: 100 });
    await peer.faces(node).hello();
    const late = await open(FIRST);
    let release = () => {};
    staging.gates.set(1, new Promise((resolve) => (release = resolve)));
    await staging.send(1, large(FIRST, 1), { muxSlot: nameOf(FIRST, late) });
    expect((await endsWith(late, FIRST)).message).to.include('100 ms');
    release();
  });

  it('one behind too many others of its sender ends its stream at once, and theirs go on', async () => {
    const [first, crowded] = [await open(FIRST), await open(SECOND)];
    let release = () => {};
    staging.gates.set(1, new Promise((resolve) => (release = resolve)));
    await staging.send(1, large(FIRST, 1), { muxSlot: nameOf(FIRST, first) });
    // They wait behind the first, and none of them names a stream.
    await Promise.all(range(1, MAX_WAITING_PER_PEER).map(() => staging.send(2, undefined)));
    await staging.send(3, large(SECOND, 1), { muxSlot: nameOf(SECOND, crowded) });
    expect((await endsWith(crowded, SECOND)).message).to.include('already wait');
    expect(node.stats()).to.include({ droppedStagedBatch: 1, liveSlots: 1 });
    release();
    expect((await endsWith(first, FIRST)).message).to.include(`stagedPayloadMax = ${MAX_BYTES}`);
  });

  it('a header that names nothing is counted and ignored', async () => {
    const refused = await open(FIRST);
    const before = node.stats().droppedBadMessage;
    const bad = ['', '1:2', `${nameOf(FIRST, refused)}:`, `+${nameOf(FIRST, refused)}`, '9'.repeat(1_000)];
    for (const [i, muxSlot] of bad.entries()) await staging.send(i + 1, large(FIRST, 1), { muxSlot });
    await until('all are counted', () => node.stats().droppedBadMessage === before + bad.length);
    await goesOn(refused, FIRST);
    await failure('ERR_ANCHOR_NOT_FOUND', () => node.attachAnchor(refused.anchor.handle));
  });
});
