// Defaults, ranges and derived values of the mux configuration.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { slotBufferDepth } from '../../../lib/mux/credit.js';
import { effectiveBatchCap, type MuxOptions, resolveMuxConfig } from '../../../lib/mux/mux-config.js';

function refusal(options: MuxOptions): string {
  try {
    resolveMuxConfig(options);
  } catch (error) {
    if (VeloError.is(error, 'ERR_INVALID_ARGUMENT')) return error.message;
    throw error;
  }
  return '';
}

describe('mux configuration', () => {
  it('AC-31 the documented defaults', () => {
    expect(resolveMuxConfig()).to.deep.equal({
      initialCredit: 32,
      slotByteBudget: 1_048_576,
      peerByteBudget: 8_388_608,
      maxBatchBytes: 61_440,
      creditSweepIntervalMs: 200,
      drainVisitFloorMs: 2,
      replyLingerMs: 1,
      batcherIdleTtlMs: 60_000,
      maxRecordBytes: 64 * 1024 * 1024 - 64,
      asyncOpenAck: false,
      flushPolicy: { kind: 'auto', onAdmission: true, maxLingerMs: undefined, onComplete: false, atBytes: undefined },
    });
  });

  it('AC-31 credit 7 and cap 2048 pass through, and give a depth of 8', () => {
    const config = resolveMuxConfig({ initialCredit: 7, slotByteBudget: 2_048 });
    expect([config.initialCredit, config.slotByteBudget]).to.deep.equal([7, 2_048]);
    expect(slotBufferDepth(config.initialCredit)).to.equal(8);
  });

  it('AC-32 at the defaults a starved sender waits about 94 µs per record', () => {
    const { drainVisitFloorMs, replyLingerMs, initialCredit } = resolveMuxConfig();
    expect(((drainVisitFloorMs + replyLingerMs) / initialCredit) * 1_000).to.be.closeTo(93.75, 0.01);
  });

  it('AN-20 a window of 0 is refused by name', () => {
    expect(refusal({ initialCredit: 0 })).to.contain('initialCredit');
  });

  it('AN-21 a sweep interval of 0 is refused by name', () => {
    expect(refusal({ creditSweepIntervalMs: 0 })).to.contain('creditSweepIntervalMs');
  });

  it('every other field out of range is refused by name', () => {
    const bad: [string, MuxOptions][] = [
      ['initialCredit', { initialCredit: 1.5 }],
      ['initialCredit', { initialCredit: Number.NaN }],
      ['initialCredit', { initialCredit: 65_537 }],
      ['slotByteBudget', { slotByteBudget: -1 }],
      ['slotByteBudget', { slotByteBudget: 2 ** 32 }],
      ['peerByteBudget', { peerByteBudget: -1 }],
      ['maxBatchBytes', { maxBatchBytes: -1 }],
      ['creditSweepIntervalMs', { creditSweepIntervalMs: -5 }],
      ['creditSweepIntervalMs', { creditSweepIntervalMs: Number.POSITIVE_INFINITY }],
      ['drainVisitFloorMs', { drainVisitFloorMs: Number.NaN }],
      ['replyLingerMs', { replyLingerMs: -1 }],
      ['flushPolicy', { flushPolicy: 'sometimes' as 'auto' }],
      ['flushPolicy', { flushPolicy: { maxLingerMs: -1 } }],
      ['flushPolicy', { flushPolicy: { onAdmission: 1 as unknown as boolean } }],
      ['flushPolicy.onComplete', { flushPolicy: { onComplete: 'yes' as unknown as boolean } }],
      ['flushPolicy.atBytes', { flushPolicy: { atBytes: 0 } }],
      ['flushPolicy.atBytes', { flushPolicy: { atBytes: 1.5 } }],
      ['flushPolicy.atBytes', { flushPolicy: { atBytes: 16 * 1024 * 1024 + 1 } }],
      ['maxRecordBytes', { maxRecordBytes: 1_023 }],
      ['maxRecordBytes', { maxRecordBytes: 2 ** 31 }],
      ['asyncOpenAck', { asyncOpenAck: 1 as unknown as boolean }],
    ];
    for (const [field, options] of bad) expect(refusal(options), JSON.stringify(options)).to.contain(field);
  });

  it('a byte budget of 0 means the default, and an absurd floor is clamped to an hour', () => {
    expect(resolveMuxConfig({ slotByteBudget: 0 }).slotByteBudget).to.equal(1_048_576);
    expect(resolveMuxConfig({ drainVisitFloorMs: Number.POSITIVE_INFINITY }).drainVisitFloorMs).to.equal(3_600_000);
    expect(resolveMuxConfig({ drainVisitFloorMs: 0 }).drainVisitFloorMs).to.equal(0);
  });

  it('a linger alone leaves the write on admission as it is', () => {
    expect(resolveMuxConfig({ flushPolicy: { maxLingerMs: 5 } }).flushPolicy).to.deep.equal({
      kind: 'auto',
      onAdmission: true,
      maxLingerMs: 5,
      onComplete: false,
      atBytes: undefined,
    });
    expect(resolveMuxConfig({ flushPolicy: 'manual' }).flushPolicy).to.deep.equal({ kind: 'manual' });
  });

  it('AU-16 the cap of a batch is the smallest clamp, never below one empty record', () => {
    const eager = Number.POSITIVE_INFINITY;
    expect(effectiveBatchCap(4_096, eager)).to.equal(4_096);
    expect(effectiveBatchCap(1_048_576, eager)).to.equal(65_536);
    expect(effectiveBatchCap(61_440, 8_192)).to.equal(8_192);
    expect(effectiveBatchCap(61_440, 1)).to.equal(29);
    expect(effectiveBatchCap(0, eager)).to.equal(29);
  });
});
