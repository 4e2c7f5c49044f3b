// Worker addresses, endpoints, lane ports, PeerInfo.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import {
  decodeLanePorts,
  decodeTcpEndpoints,
  decodeUdsPath,
  decodeWorkerAddress,
  encodeLanePorts,
  encodeTcpEndpoints,
  encodeUdsPath,
  encodeWorkerAddress,
  type TcpEndpoint,
} from '../../../lib/wire/address.js';
import { parseJson, stringifyJson } from '../../../lib/wire/json.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP } from '../../../lib/wire/names.js';
import { PeerInfo } from '../../../lib/wire/peer-info.js';
import { encodeUtf8 } from '../../../lib/wire/utf8.js';
import { workerIdOf } from '../../../lib/wire/worker-id.js';
import { codeOf, fromHex, loadVectorFile, loadVectors, toHex } from '../../support/vectors.js';

interface AddressFile {
  endpoints: { name: string; endpoints: TcpEndpoint[]; hex: string }[];
  addresses: { name: string; entries: [string, string][]; hex: string }[];
}

const file = loadVectorFile<AddressFile>('addresses');
const INSTANCE = '00112233-4455-6677-8899-aabbccddeeff';

describe('wire/address', () => {
  for (const vector of file.endpoints) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      expect(toHex(encodeTcpEndpoints(vector.endpoints))).to.equal(vector.hex);
      expect(decodeTcpEndpoints(fromHex(vector.hex))).to.deep.equal(vector.endpoints);
    });
  }

  for (const vector of file.addresses) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const entries = vector.entries.map(([key, hex]): [string, Uint8Array] => [key, fromHex(hex)]);
      expect(toHex(encodeWorkerAddress(entries))).to.equal(vector.hex);
      expect(decodeWorkerAddress(fromHex(vector.hex))).to.deep.equal(new Map(entries));
    });
  }

  it('reads byte strings where arrays are written', () => {
    expect(decodeWorkerAddress(fromHex('81a3756473c403616263'))).to.deep.equal(new Map([['uds', encodeUtf8('abc')]]));
  });

  it('refuses no bytes, other values, cut maps and trailing bytes', () => {
    for (const hex of [
      '',
      '90',
      '81',
      '81a374637081',
      '81a3746370c0',
      '81a3746370920100ff',
      '81a374637091cd0100',
      '8000',
    ]) {
      expect(
        codeOf(() => decodeWorkerAddress(fromHex(hex))),
        hex,
      ).to.equal('ERR_BAD_ADDRESS');
    }
  });

  it('reads endpoints with field names and the older text forms', () => {
    const named = fromHex(
      '9186a46e616d65a0a26970a831302e302e302e35a4706f7274cda112aa7072656669785f6c656e18a96e756d615f6e6f6465c0a178c0',
    );
    expect(decodeTcpEndpoints(named)).to.deep.equal([
      { name: '', host: '10.0.0.5', port: 41234, prefixLength: 24, numaNode: null },
    ]);
    const text = (value: string): string => {
      const [endpoint] = decodeTcpEndpoints(encodeUtf8(value));
      return `${endpoint!.host} ${endpoint!.port}`;
    };
    expect(text('tcp://10.0.0.5:41234')).to.equal('10.0.0.5 41234');
    expect(text('grpc://node.local:1')).to.equal('node.local 1');
    expect(text('node:65535')).to.equal('node 65535');
    expect(text('tcp://[fe80::1%eth0]:80')).to.equal('fe80::1%eth0 80');
    for (const bad of ['', 'host', 'host:', 'host:65536', '::1:80', 'http://host:80', 'host:8a', ' host:80']) {
      expect(
        codeOf(() => decodeTcpEndpoints(encodeUtf8(bad))),
        bad,
      ).to.equal('ERR_BAD_ADDRESS');
    }
  });

  it('refuses endpoints of four or six fields, an empty list, and values out of range', () => {
    for (const hex of [
      '90',
      '9194a0a93132372e302e302e31cd15b320',
      '9196a0a93132372e302e302e31cd15b320c0c0',
      '9195a0a131ce0001000020c0',
      '9195a0a13101cd0100c0',
      '9195a0a1310120cf0000000100000000',
      '9182a46e616d65a0a2697000',
      '9195a0a1310120c000',
      '9294a0a1310120c095a0a1310120c0', // a short one must not borrow from the next
    ]) {
      expect(
        codeOf(() => decodeTcpEndpoints(fromHex(hex))),
        hex,
      ).to.equal('ERR_BAD_ADDRESS');
    }
    const good: TcpEndpoint = { name: '', host: '::1', port: 1, prefixLength: 128, numaNode: -1 };
    expect(decodeTcpEndpoints(encodeTcpEndpoints([good]))).to.deep.equal([good]);
    for (const bad of [{ port: 65_536 }, { port: -1 }, { prefixLength: 256 }, { numaNode: 2 ** 31 }, { port: 1.5 }]) {
      expect(codeOf(() => encodeTcpEndpoints([{ ...good, ...bad }]))).to.equal('ERR_INVALID_ARGUMENT');
    }
    expect(codeOf(() => encodeTcpEndpoints([]))).to.equal('ERR_INVALID_ARGUMENT');
  });

  it('writes the path of a Unix socket with its scheme, and reads it with or without', () => {
    const text = (value: string) => new TextEncoder().encode(value);
    expect(encodeUdsPath('/run/a.sock')).to.deep.equal(text('uds:///run/a.sock'));
    for (const path of ['/run/a.sock', 'relative', '/with spaces/é?q=1#x']) {
      expect(decodeUdsPath(encodeUdsPath(path))).to.equal(path);
      expect(decodeUdsPath(text(path)), 'a bare path').to.equal(path);
    }
    for (const value of [text(''), text('uds://'), Uint8Array.of(0xff, 0xfe)])
      expect(() => decodeUdsPath(value))
        .to.throw(VeloError)
        .with.property('code', 'ERR_BAD_ADDRESS');
  });

  it('carries the port of each lane under a key of its own', () => {
    const ports = [41000, 1, 65_535];
    expect(toHex(encodeLanePorts(ports))).to.equal('93cda02801cdffff');
    expect(decodeLanePorts(encodeLanePorts(ports))).to.deep.equal(ports);
    expect(ADDRESS_KEY_LANES).to.equal('velomux-lanes');
    for (const bad of [[], [0], [65_536], [1.5], new Array<number>(17).fill(1)]) {
      expect(codeOf(() => encodeLanePorts(bad))).to.equal('ERR_INVALID_ARGUMENT');
    }
    for (const hex of ['', '90', '9100', '91ce00010000', '91a131', `dc0011${'01'.repeat(17)}`, '910101']) {
      expect(
        codeOf(() => decodeLanePorts(fromHex(hex))),
        hex,
      ).to.equal('ERR_BAD_ADDRESS');
    }
  });
});

describe('wire/peer-info', () => {
  for (const vector of loadVectors<{
    name: string;
    instance: string;
    worker: string;
    address: string;
    json: string;
    msgpack: string;
    namedLength: number;
  }>('peer-info')) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const info = new PeerInfo(vector.instance, fromHex(vector.address));
      expect(info.workerId).to.equal(BigInt(vector.worker));
      expect(stringifyJson(info)).to.equal(vector.json);
      expect(JSON.stringify(info)).to.equal(vector.json);
      expect(toHex(info.toMsgpack())).to.equal(vector.msgpack);
      expect(info.toMsgpack('named')).to.have.length(vector.namedLength);
      for (const back of [
        PeerInfo.fromJSON(parseJson(vector.json)),
        PeerInfo.fromJSON(JSON.parse(vector.json)),
        PeerInfo.fromMsgpack(fromHex(vector.msgpack)),
        PeerInfo.fromMsgpack(info.toMsgpack('named')),
      ]) {
        expect(back).to.deep.equal(info);
      }
      expect([...info.entries().keys()]).to.deep.equal([ADDRESS_KEY_TCP]);
    });
  }

  it('normalises the id, keeps the address bytes and ignores unknown members', () => {
    const info = PeerInfo.fromJSON({ instance_id: INSTANCE.toUpperCase(), worker_address: [1, 2, 255], more: true });
    expect(info.instanceId).to.equal(INSTANCE);
    expect(info.workerId).to.equal(workerIdOf(INSTANCE));
    expect([...info.address]).to.deep.equal([1, 2, 255]);
    expect(PeerInfo.fromJSON(info)).to.equal(info);
  });

  it('refuses a text address, wrong bytes, a missing member, an id that is none', () => {
    for (const value of [
      { instance_id: INSTANCE, worker_address: 'AAAA' },
      { instance_id: INSTANCE, worker_address: [256] },
      { instance_id: INSTANCE, worker_address: [-1] },
      { instance_id: INSTANCE, worker_address: [] },
      { instance_id: INSTANCE },
      { instance_id: 'no', worker_address: [1] },
      { instance_id: 5, worker_address: [1] },
      null,
      [],
    ]) {
      expect(codeOf(() => PeerInfo.fromJSON(value))).to.equal('ERR_BAD_ADDRESS');
    }
    for (const hex of ['', '91', '92c40101c40101', '82a16101a16202', '93c0c0c0', 'c0']) {
      expect(
        codeOf(() => PeerInfo.fromMsgpack(fromHex(hex))),
        hex,
      ).to.equal('ERR_BAD_ADDRESS');
    }
  });
});

describe('wire/address: random input', () => {
  it('gives a value or ERR_BAD_ADDRESS', () => {
    const seeds = [...file.endpoints, ...file.addresses].map((vector) => fromHex(vector.hex));
    seeds.push(...loadVectors<{ msgpack: string }>('peer-info').map((vector) => fromHex(vector.msgpack)));
    seeds.push(encodeUtf8('tcp://10.0.0.5:41234'), encodeLanePorts([1, 2, 3]));
    const mutated = fc
      .tuple(fc.constantFrom(...seeds), fc.nat(), fc.integer({ min: 0, max: 255 }), fc.nat())
      .map(([seed, at, value, cut]) => {
        const bytes = seed.slice();
        bytes[at % bytes.length] = value;
        return cut % 4 === 0 ? bytes.slice(0, cut % (bytes.length + 1)) : bytes;
      });
    fc.assert(
      fc.property(fc.oneof(mutated, fc.uint8Array({ maxLength: 60 })), (bytes) => {
        for (const decode of [decodeWorkerAddress, decodeTcpEndpoints, decodeLanePorts, PeerInfo.fromMsgpack]) {
          try {
            decode(bytes);
          } catch (error) {
            expect(VeloError.is(error, 'ERR_BAD_ADDRESS')).to.equal(true);
          }
        }
      }),
      { numRuns: 1500 },
    );
  });
});
