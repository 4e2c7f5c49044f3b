// How a node finds peers that nobody registered: the interface that a directory of nodes implements. It holds no code.

import type { PeerInfo } from '../wire/peer-info.js';

/**
 * A directory of nodes. A node with one (option `discovery`) enters itself when it is made and leaves when it is closed; a message or
 * an attach to a worker or instance that is not registered asks it, and so do data by handle and questions for handlers. Errors it raises should be `VeloError`s.
 */
export interface Discovery {
  /**
   * Enters a node. Rejects, with `ERR_ALREADY_REGISTERED`, when its instance is there already (whatever its address), or another
   * instance with its worker id.
   */
  register(info: PeerInfo): Promise<DiscoveryRegistration>;
  /** The peer with this worker id; undefined when there is none. */
  resolve(workerId: bigint): Promise<PeerInfo | undefined>;
  /** The peer with this instance id (lower case, hyphenated). Without it, peers are found by worker id only. */
  resolveInstance?(instanceId: string): Promise<PeerInfo | undefined>;
  /**
   * Tells, until the signal is aborted, which peers came, changed their address, or left; first all that are there. It must not keep
   * the process alive. Without it, `registerDiscovered` cannot be used.
   */
  watch?(listener: (changes: DiscoveryChanges) => void, signal?: AbortSignal): void;
}

/** An entry of one's own. Disposing of it takes it out again. */
export interface DiscoveryRegistration extends AsyncDisposable {
  /** Takes the entry out. Idempotent; an entry that is gone already is no error. */
  unregister(): Promise<void>;
}

/** What is different since the last report. */
export interface DiscoveryChanges {
  readonly added: readonly PeerInfo[];
  /** With their new address. */
  readonly changed: readonly PeerInfo[];
  readonly removed: readonly PeerInfo[];
}
