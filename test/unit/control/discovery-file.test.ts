// The text of a discovery file: the reference's layout, exact integers, and what becomes of entries that make no sense.

import { expect } from 'chai';
import { DiscoveryEntries, MAX_DISCOVERY_ENTRIES } from '../../../lib/control/discovery-file.js';
import { VeloError } from '../../../lib/errors.js';
import { PeerInfo } from '../../../lib/wire/peer-info.js';
import { fromHex } from '../../support/vectors.js';

const A = new PeerInfo(
  '00112233-4455-6677-8899-aabbccddeeff',
  fromHex('81a3746370dc0012cc91cc95cca0cca93132372e302e302e31cccd15ccb320ccc0'),
);
const B = new PeerInfo('f47ac10b-58cc-4372-a567-0e02b2c3d479', Uint8Array.of(0x80));

/** As the reference prints it: two spaces, a line per byte. */
const FILE_OF_A = `{
  "peers": [
    {
      "instance_id": "00112233-4455-6677-8899-aabbccddeeff",
      "worker_id": 14225989560148541334,
      "worker_address": [
${Array.from(A.address, (byte) => `        ${byte}`).join(',\n')}
      ],
      "address_checksum": 1221309287881588350
    }
  ]
}`;

const text = (value: string) => new TextEncoder().encode(value);
const parse = (value: string) => DiscoveryEntries.parse(text(value), '/run/peers.json');
const format = (entries: DiscoveryEntries) => new TextDecoder().decode(entries.format());
const entryOf = (changes: object) => ({
  instance_id: B.instanceId,
  worker_id: 7,
  worker_address: [128],
  address_checksum: 7,
  ...changes,
});

function failsWith(code: string, action: () => unknown): VeloError {
  try {
    action();
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    expect(error.code).to.equal(code);
    return error;
  }
  throw new Error('nothing failed');
}

describe('control/discovery-file', () => {
  it('writes what the reference writes, with exact 64-bit integers', () => {
    const entries = parse('');
    entries.add(A);
    expect(format(entries)).to.equal(FILE_OF_A);
  });

  it('reads what the reference writes, in any layout', () => {
    for (const layout of [FILE_OF_A, FILE_OF_A.replace(/\s/g, ''), ` \n${FILE_OF_A}\n`]) {
      const entries = parse(layout);
      expect([...entries.peers().keys()]).to.deep.equal([A.instanceId]);
      expect(entries.worker(A.workerId)?.address).to.deep.equal(A.address);
      expect(entries.instance(A.instanceId)?.workerId).to.equal(14225989560148541334n);
      expect(entries.damaged).to.equal(0);
      expect(entries.worker(1n)).to.equal(undefined);
    }
  });

  it('no bytes are no peers', () => {
    const entries = DiscoveryEntries.parse(new Uint8Array(0), 'x');
    expect(entries.peers().size).to.equal(0);
    expect(format(entries)).to.equal('{\n  "peers": []\n}');
  });

  it('the id makes the worker id, whatever the entry says; the checksum is not checked', () => {
    const entries = parse(JSON.stringify({ peers: [entryOf({})] }));
    expect(entries.worker(B.workerId)?.instanceId).to.equal(B.instanceId);
    expect(entries.worker(7n)).to.equal(undefined);
  });

  it('of two entries of one instance the later counts, and both go when it leaves', () => {
    const entries = parse(JSON.stringify({ peers: [entryOf({}), entryOf({ worker_address: [1, 2] })] }));
    expect(entries.instance(B.instanceId)?.address).to.deep.equal(Uint8Array.of(1, 2));
    expect(entries.peers().get(B.instanceId)?.address).to.deep.equal(Uint8Array.of(1, 2));
    expect(entries.remove(B.instanceId)).to.equal(true);
    expect(entries.instance(B.instanceId)).to.equal(undefined);
    expect(entries.remove(B.instanceId)).to.equal(false);
  });

  it('an instance that is there already is refused, with the same address or another', () => {
    const entries = parse(FILE_OF_A);
    expect(failsWith('ERR_ALREADY_REGISTERED', () => entries.add(A)).message).to.include(A.instanceId);
    const elsewhere = new PeerInfo(A.instanceId, Uint8Array.of(0x80));
    expect(failsWith('ERR_ALREADY_REGISTERED', () => entries.add(elsewhere)).message).to.include('different address');
    expect(format(entries)).to.equal(FILE_OF_A);
  });

  it('another instance with the same worker id is refused', () => {
    // Two ids whose halves cancel out in the hash (messenger specification §1.2).
    const first = new PeerInfo('b93942ea-7b73-8267-3255-900c3fbf54ae', Uint8Array.of(0x80));
    const second = new PeerInfo('b83b41ee-7e75-856f-3a52-96093bbc56af', Uint8Array.of(0x80));
    expect(first.instanceId).not.to.equal(second.instanceId);
    expect(first.workerId).to.equal(second.workerId);
    const entries = parse('');
    entries.add(first);
    const error = failsWith('ERR_ALREADY_REGISTERED', () => entries.add(second));
    expect(error.message).to.include(first.instanceId).and.include(second.instanceId);
  });

  it('a damaged entry hides no other and is kept as it is', () => {
    const damaged: unknown[] = [
      null,
      'text',
      entryOf({ instance_id: 'no uuid' }),
      entryOf({ worker_id: -1 }),
      entryOf({ worker_id: undefined }),
      entryOf({ address_checksum: 1.5 }),
      entryOf({ worker_address: [] }),
      entryOf({ worker_address: [256] }),
      entryOf({ worker_address: 'text' }),
    ];
    const json = JSON.stringify({ version: 3, peers: [...damaged, 'GOOD'], more: { of: 'it' } });
    const entries = parse(
      json.replace('"GOOD"', FILE_OF_A.slice(FILE_OF_A.indexOf('[') + 1, FILE_OF_A.lastIndexOf(']'))),
    );
    expect(entries.damaged).to.equal(damaged.length);
    expect([...entries.peers().keys()]).to.deep.equal([A.instanceId]);
    entries.remove(A.instanceId);
    entries.add(B);
    const written = JSON.parse(format(entries));
    expect(written.peers.slice(0, -1)).to.deep.equal(JSON.parse(JSON.stringify(damaged)));
    expect(written).to.include({ version: 3 }).and.have.nested.property('more.of', 'it');
  });

  it('integers of entries that are kept stay exact', () => {
    const entries = parse('{"peers":[{"worker_id":18446744073709551615,"x":[9007199254740993]}]}');
    entries.add(B);
    expect(format(entries)).to.include('18446744073709551615').and.include('9007199254740993');
  });

  it('what is no such file is refused by code, naming it', () => {
    for (const content of ['{', 'null', '[]', '{}', '{"peers":{}}', ' ', `${FILE_OF_A}x`, '{"peers":[1,]}']) {
      const error = failsWith('ERR_BAD_DISCOVERY_FILE', () => parse(content));
      expect(error.message, content).to.include('/run/peers.json');
    }
    failsWith('ERR_BAD_DISCOVERY_FILE', () => DiscoveryEntries.parse(Uint8Array.of(0xff, 0xfe), 'x'));
  });

  it('holds so many entries and no more', () => {
    const full = parse(`{"peers":[${'0,'.repeat(MAX_DISCOVERY_ENTRIES - 1)}0]}`);
    expect(full.damaged).to.equal(MAX_DISCOVERY_ENTRIES);
    failsWith('ERR_LIMIT', () => full.add(B));
    failsWith('ERR_BAD_DISCOVERY_FILE', () => parse(`{"peers":[${'0,'.repeat(MAX_DISCOVERY_ENTRIES)}0]}`));
  });

  it('is not written larger than it may be read', () => {
    const entries = parse('');
    // A byte takes up to thirteen characters in the file.
    entries.add(new PeerInfo(A.instanceId, new Uint8Array(1_400_000).fill(200)));
    failsWith('ERR_LIMIT', () => entries.format());
  });
});
