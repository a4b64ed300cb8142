"""A task's connection to a broker, inside the JVM.

Owns: the Java of frames on a socket, their headers and correlation ids, and the wait for them.
Must not know what is asked or answered.

A wait ends after a while without progress, or when Spark kills the task: the thread that waits is
the task's own.  It is Java as the packer is (``record_packer``): text that Janino compiles, which
infers no generics.
"""

from typing import Final

from sparklog.dataframe.jvm.jvm_class import filled
from sparklog.dataframe.jvm.jvm_wire import wire_java

#: A frame that says it is larger is none.
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
#: What is written at once: the JVM copies it, and again what the socket did not take.
CHUNK_BYTES: Final = 256 * 1024
#: How often a wait looks whether Spark has killed the task.
LOOK_MS: Final = 500

_JAVA: Final = r"""
final class BrokerConnection {
  private final org.apache.spark.TaskContext task;
  /** Of all waits; without patience only. */
  private final long deadline;
  /** Of each wait, in milliseconds; 0: none so far. */
  private long patience;
  private final byte[] client;
  private final java.nio.channels.Selector selector;
  private java.nio.channels.SocketChannel channel;
  private java.nio.channels.SelectionKey key;
  private final java.nio.ByteBuffer size = java.nio.ByteBuffer.allocate(4);
  private java.nio.ByteBuffer answer;
  private java.nio.ByteBuffer request;
  /** What is sent: parts of the request, and what was put between them. */
  private final java.util.ArrayList parts = new java.util.ArrayList();
  /** Where the part begins that is not among them yet. */
  private int rest;
  private int correlation;

  /** Connects to HOST:PORT; the deadline is one of System.nanoTime. */
  BrokerConnection(
      String server, String client, long deadline, org.apache.spark.TaskContext task)
      throws java.io.IOException {
    this.task = task;
    this.deadline = deadline;
    this.client = client.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    if (this.client.length > Short.MAX_VALUE) throw new java.io.IOException("a name too long");
    java.net.InetSocketAddress address = address(server.trim());
    selector = java.nio.channels.Selector.open();
    boolean connected = false;
    try {
      channel = java.nio.channels.SocketChannel.open();
      channel.configureBlocking(false);
      channel.setOption(java.net.StandardSocketOptions.TCP_NODELAY, Boolean.TRUE);
      key = channel.register(selector, java.nio.channels.SelectionKey.OP_CONNECT);
      if (!channel.connect(address)) {
        do await(java.nio.channels.SelectionKey.OP_CONNECT); while (!channel.finishConnect());
      }
      connected = true;
    } finally {
      if (!connected) close();
    }
  }

  /** From now on each wait has so many milliseconds. */
  void setPatience(long patience) {
    this.patience = patience;
  }

  private static java.net.InetSocketAddress address(String server) throws java.io.IOException {
    int colon = server.lastIndexOf(':');
    if (colon < 0) throw new java.io.IOException(server + " is not HOST:PORT");
    String host = server.substring(0, colon).replace("[", "").replace("]", "");
    java.net.InetSocketAddress found = null;
    try {
      found = new java.net.InetSocketAddress(
          host, Integer.parseInt(server.substring(colon + 1)));
    } catch (IllegalArgumentException error) {
      throw new java.io.IOException(server + " is not HOST:PORT");
    }
    if (found.isUnresolved()) throw new java.net.UnknownHostException(host);
    return found;
  }

  /** Begins a request; what comes behind its header has at most so many bytes. */
  java.nio.ByteBuffer request(int api, int version, boolean flexible, int bytes) {
    int room = 16 + client.length + bytes;
    if (request == null || request.capacity() < room)
      request = java.nio.ByteBuffer.allocate(room);
    correlation = correlation + 1 & Integer.MAX_VALUE;
    request.clear();
    parts.clear();
    rest = 0;
    request.putInt(0);
    request.putShort((short) api);
    request.putShort((short) version);
    request.putInt(correlation);
    request.putShort((short) client.length);
    request.put(client);
    if (flexible) request.put((byte) 0);
    return request;
  }

  /** Of the request that was begun last. */
  int correlation() {
    return correlation;
  }

  /** Has bytes follow what was put into it so far. */
  void insert(byte[] bytes, int end) {
    endPart();
    for (int from = 0; from < end; from += CHUNK_BYTES)
      parts.add(java.nio.ByteBuffer.wrap(bytes, from, Math.min(end - from, CHUNK_BYTES)));
  }

  /** Of the request itself. */
  private void endPart() {
    parts.add(java.nio.ByteBuffer.wrap(request.array(), rest, request.position() - rest));
    rest = request.position();
  }

  /** Sends it. */
  void send() throws java.io.IOException {
    endPart();
    java.nio.ByteBuffer[] all = new java.nio.ByteBuffer[parts.size()];
    int size = -4;
    for (int i = 0; i < all.length; i++) {
      all[i] = (java.nio.ByteBuffer) parts.get(i);
      size += all[i].remaining();
    }
    parts.clear();
    request.putInt(0, size);
    write(all);
  }

  /** Sends it, and gives the answer. */
  java.nio.ByteBuffer ask() throws java.io.IOException {
    send();
    return receive(correlation);
  }

  /** The next answer, which has to be that to this request, from behind the correlation id on. */
  java.nio.ByteBuffer receive(int expected) throws java.io.IOException {
    while (!hasAnswer()) await(java.nio.channels.SelectionKey.OP_READ);
    java.nio.ByteBuffer found = answer;
    answer = null;
    found.flip();
    if (found.getInt() != expected) throw new java.io.IOException("an answer to something else");
    return found;
  }

  /** A chunk at a time, or a little more. */
  private void write(java.nio.ByteBuffer[] all) throws java.io.IOException {
    int at = 0;
    while (at < all.length) {
      int end = at;
      for (long bytes = 0L; end < all.length && bytes < CHUNK_BYTES; end++)
        bytes += all[end].remaining();
      while (at < end) {
        if (!all[at].hasRemaining()) at++;
        else if (channel.write(all, at, end - at) == 0L)
          await(java.nio.channels.SelectionKey.OP_WRITE);
      }
    }
  }

  /** Whether there is an answer, without a wait. */
  boolean hasAnswer() throws java.io.IOException {
    if (answer == null && isFull(size)) {
      int length = size.getInt(0);
      if (length < 4 || length > ANSWER_BYTES_MAX)
        throw new java.io.IOException("an answer of " + length + " bytes");
      size.clear();
      answer = java.nio.ByteBuffer.allocate(length);
    }
    return answer != null && isFull(answer);
  }

  private boolean isFull(java.nio.ByteBuffer buffer) throws java.io.IOException {
    if (buffer.hasRemaining() && channel.read(buffer) < 0)
      throw new java.io.EOFException("the broker closed the connection");
    return !buffer.hasRemaining();
  }

  private void await(int operation) throws java.io.IOException {
    long end = patience == 0L ? deadline : System.nanoTime() + patience * 1000000L;
    key.interestOps(operation);
    while (true) {
      long left = (end - System.nanoTime()) / 1000000L;
      if (left <= 0L) throw new java.net.SocketTimeoutException("no progress in time");
      int ready = selector.select(Math.min(left, LOOK_MS));
      selector.selectedKeys().clear();
      task.killTaskIfInterrupted();
      if (Thread.currentThread().isInterrupted())
        throw new org.apache.spark.TaskKilledException("interrupted while waiting for a broker");
      if (ready > 0) return;
    }
  }

  void close() {
    java.io.Closeable[] both = {channel, selector};
    for (int i = 0; i < both.length; i++) {
      try {
        if (both[i] != null) both[i].close();
      } catch (java.io.IOException ignored) {
        // It is not used any more.
      }
    }
  }
}
"""


def broker_connection_java() -> str:
    """The class ``BrokerConnection``, and what it needs, for inside others."""
    named = {
        "ANSWER_BYTES_MAX": str(ANSWER_BYTES_MAX),
        "CHUNK_BYTES": str(CHUNK_BYTES),
        "LOOK_MS": f"{LOOK_MS}L",
    }
    return filled(_JAVA, named) + wire_java()
