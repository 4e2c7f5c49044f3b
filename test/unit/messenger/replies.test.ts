// Reply frames against the vectors of the messenger specification §3.6.

import { expect } from 'chai';
import {
  decodeErrorText,
  encodeReply,
  encodeShuttingDown,
  MAX_ERROR_TEXT_BYTES,
} from '../../../lib/messenger/replies.js';
import { RESPONSE_FIXED_LEN } from '../../../lib/wire/envelope.js';
import { encodeHeaderMap } from '../../../lib/wire/header-map.js';
import type { ResponseId } from '../../../lib/wire/response-id.js';
import { FrameReader, MAX_FRAME_BODY, PREAMBLE_LEN } from '../../../lib/wire/transport-frame.js';

const hex = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString('hex');
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const idOf = (slot: number): ResponseId => ({ workerHi: 0xc56cde21, workerLo: 0xe711bf96, slot, generation: 0 });

describe('reply frames', () => {
  it('an ok response carries the result', () => {
    expect(hex(encodeReply({ reply: 'response', bytes: utf8('hello') }, idOf(0)))).to.equal(
      '000101000000130000000596bf11e721de6cc5000000000000000000000068656c6c6f',
    );
  });

  it('an ok response may echo the header map', () => {
    const map = encodeHeaderMap([['k', 'v']]);
    expect(hex(encodeReply({ reply: 'response', bytes: utf8('{}') }, idOf(0), map))).to.equal(
      '000101000000180000000296bf11e721de6cc5000000000000000000050081a16ba1767b7d',
    );
  });

  it('an error response carries its text', () => {
    expect(hex(encodeReply({ reply: 'responseError', text: 'boom' }, idOf(0)))).to.equal(
      '000101000000130000000496bf11e721de6cc50000000000000000010000626f6f6d',
    );
  });

  it('an ack has no payload, a nack its text', () => {
    expect(hex(encodeReply({ reply: 'ack' }, idOf(1)))).to.equal(
      '00010200000011000000000096bf11e721de6cc50100000000000000',
    );
    expect(hex(encodeReply({ reply: 'nack', text: "Handler 'do' not found" }, idOf(1)))).to.equal(
      '00010200000011000000160296bf11e721de6cc5010000000000000048616e646c65722027646f27206e6f7420666f756e64',
    );
  });

  it('nothing goes back when the plan says so', () => {
    expect(encodeReply({ reply: 'none' }, idOf(0))).to.equal(undefined);
    expect(encodeReply({ reply: 'shuttingDown' }, idOf(0))).to.equal(undefined);
  });

  it('the echo of a refused request is its header byte for byte', () => {
    const request = Buffer.from(
      '0001000000001a00000005010296bf11e721de6cc50000000000000000040070696e67000068656c6c6f',
      'hex',
    );
    expect(hex(encodeShuttingDown(request, PREAMBLE_LEN, 26))).to.equal(
      '0001040000001a00000000010296bf11e721de6cc50000000000000000040070696e670000',
    );
  });

  it('a result that just fits goes out, one byte more becomes an error', () => {
    const room = MAX_FRAME_BODY - RESPONSE_FIXED_LEN;
    const big = new Uint8Array(room + 1);
    const fits = encodeReply({ reply: 'response', bytes: big.subarray(0, room) }, idOf(0));
    expect(fits?.length).to.equal(PREAMBLE_LEN + MAX_FRAME_BODY);
    expect(fits?.[PREAMBLE_LEN + 16]).to.equal(0);
    const over = encodeReply({ reply: 'response', bytes: big }, idOf(0))!;
    expect(over[PREAMBLE_LEN + 16]).to.equal(1);
    const at = PREAMBLE_LEN + RESPONSE_FIXED_LEN;
    expect(decodeErrorText(over, at, over.length - at)).to.contain(`${room + 1} bytes`);
  });

  it('cuts a long error text between characters', () => {
    const frame = encodeReply({ reply: 'nack', text: `x${'€'.repeat(MAX_ERROR_TEXT_BYTES)}` }, idOf(0))!;
    const at = PREAMBLE_LEN + 17;
    expect(frame.length - at).to.be.within(MAX_ERROR_TEXT_BYTES - 3, MAX_ERROR_TEXT_BYTES);
    expect(decodeErrorText(frame, at, frame.length - at)).to.match(/^x€+$/);
  });

  it('reads an error text that is not UTF-8 as "unknown error"', () => {
    expect(decodeErrorText(new Uint8Array([0x62, 0xff]), 0, 2)).to.equal('unknown error');
    expect(decodeErrorText(new Uint8Array(0), 0, 0)).to.equal('');
  });

  it('copies a result, so that later changes of it stay with the application', () => {
    const bytes = utf8('hello');
    const frame = encodeReply({ reply: 'response', bytes }, idOf(0))!;
    bytes.fill(0);
    let payload = '';
    const reader = new FrameReader((_type, buffer, _headerAt, _headerLength, at, length) => {
      payload = Buffer.from(buffer.subarray(at, at + length)).toString();
    });
    reader.push(frame);
    expect(payload).to.equal('hello');
  });
});
