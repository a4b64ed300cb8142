/*
 * The connection of a task to a broker.
 *
 * Owns: frames on a non-blocking socket, request headers, correlation ids, and the wait for
 * progress.
 * Must not know: what a request asks or a response answers; Spark's planner.
 *
 * A wait ends after a while without progress, or when Spark kills the task.  The waiting thread is
 * the task's own thread.
 */
package sparklog.dataframe;

final class BrokerConnection {
  /** A response that claims to be larger is malformed. */
  private static final int RESPONSE_BYTES_MAX = 16 * 1024 * 1024;
  /** Bytes of one write: the JVM copies them, and copies again what the socket did not take. */
  private static final int CHUNK_BYTES = 256 * 1024;
  /** How often a wait checks whether Spark has killed the task. */
  private static final long KILL_CHECK_MS = 500L;
  private final org.apache.spark.TaskContext task;
  /** The end of all waits by System.nanoTime, as long as there is no patience. */
  private final long deadlineNs;
  /** The limit of each wait, in milliseconds; 0 means that the deadline applies instead. */
  private long patienceMs;
  /** The client id. */
  private final byte[] clientId;
  private final java.nio.channels.Selector selector;
  private java.nio.channels.SocketChannel channel;
  private java.nio.channels.SelectionKey key;
  private final java.nio.ByteBuffer size = java.nio.ByteBuffer.allocate(4);
  private java.nio.ByteBuffer response;
  private java.nio.ByteBuffer request;
  /** The buffers to send: parts of the request, and the bytes inserted between the parts. */
  private final java.util.ArrayList parts = new java.util.ArrayList();
  /** Where the part of the request begins that is not among {@code parts} yet. */
  private int partStart;
  private int correlationId;

  /** Connects to {@code server}, a HOST:PORT.  The deadline is a value of System.nanoTime. */
  BrokerConnection(
      String server, String clientId, long deadlineNs, org.apache.spark.TaskContext task)
      throws java.io.IOException {
    this.task = task;
    this.deadlineNs = deadlineNs;
    this.clientId = clientId.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    if (this.clientId.length > Short.MAX_VALUE) throw new java.io.IOException("a name too long");
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

  /** Limits each wait from now on to {@code patienceMs} milliseconds. */
  void setPatienceMs(long patienceMs) {
    this.patienceMs = patienceMs;
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

  /** Begins a request, whose body behind the header has at most {@code bytes} bytes. */
  java.nio.ByteBuffer request(int api, int version, boolean flexible, int bytes) {
    int room = 16 + clientId.length + bytes;
    if (request == null || request.capacity() < room)
      request = java.nio.ByteBuffer.allocate(room);
    correlationId = correlationId + 1 & Integer.MAX_VALUE;
    request.clear();
    parts.clear();
    partStart = 0;
    request.putInt(0);
    request.putShort((short) api);
    request.putShort((short) version);
    request.putInt(correlationId);
    request.putShort((short) clientId.length);
    request.put(clientId);
    if (flexible) request.put((byte) 0);
    return request;
  }

  /** The correlation id of the request that was begun last. */
  int correlationId() {
    return correlationId;
  }

  /** Inserts the first {@code end} bytes behind the body so far, without a copy. */
  void insert(byte[] bytes, int end) {
    endPart();
    for (int from = 0; from < end; from += CHUNK_BYTES)
      parts.add(java.nio.ByteBuffer.wrap(bytes, from, Math.min(end - from, CHUNK_BYTES)));
  }

  /** Ends the current part of the request buffer. */
  private void endPart() {
    parts.add(java.nio.ByteBuffer.wrap(request.array(), partStart, request.position() - partStart));
    partStart = request.position();
  }

  /** Sends the request. */
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

  /** Sends the request, and waits for its response. */
  java.nio.ByteBuffer sendAndReceive() throws java.io.IOException {
    send();
    return receive(correlationId);
  }

  /**
   * Waits for the next response, which has to be that of the request with correlation id
   * {@code expected}.  The position of the returned buffer is behind the correlation id.
   */
  java.nio.ByteBuffer receive(int expected) throws java.io.IOException {
    while (!hasResponse()) await(java.nio.channels.SelectionKey.OP_READ);
    java.nio.ByteBuffer found = response;
    response = null;
    found.flip();
    if (found.getInt() != expected) throw new java.io.IOException("an answer to something else");
    return found;
  }

  /** Writes the buffers in chunks of CHUNK_BYTES, or a little more. */
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

  /** Whether a whole response has arrived.  Does not wait. */
  boolean hasResponse() throws java.io.IOException {
    if (response == null && fill(size)) {
      int length = size.getInt(0);
      if (length < 4 || length > RESPONSE_BYTES_MAX)
        throw new java.io.IOException("an answer of " + length + " bytes");
      size.clear();
      response = java.nio.ByteBuffer.allocate(length);
    }
    return response != null && fill(response);
  }

  /** Reads what has arrived, and returns whether it fills the buffer. */
  private boolean fill(java.nio.ByteBuffer buffer) throws java.io.IOException {
    if (buffer.hasRemaining() && channel.read(buffer) < 0)
      throw new java.io.EOFException("the broker closed the connection");
    return !buffer.hasRemaining();
  }

  /** Waits until the channel is ready for the operation. */
  private void await(int operation) throws java.io.IOException {
    long end = patienceMs == 0L ? deadlineNs : System.nanoTime() + patienceMs * 1000000L;
    key.interestOps(operation);
    while (true) {
      long left = (end - System.nanoTime()) / 1000000L;
      if (left <= 0L) throw new java.net.SocketTimeoutException("no progress in time");
      int ready = selector.select(Math.min(left, KILL_CHECK_MS));
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
        // Nobody uses the connection any more.
      }
    }
  }
}
