/*
 * The leaders of a topic's partitions, and the id of the topic.
 *
 * Owns: the Metadata request (v12) and what is read from its response.
 * Must not know: what the leaders are wanted for; Spark's planner.
 */
package sparklog.dataframe;

final class TopicLeaders {
  private static final int METADATA = 3;
  private static final int VERSION = 12;
  /** The topic's id (KIP-516). */
  long topicIdHigh;
  long topicIdLow;
  /** The HOST:PORT of each partition's leader. */
  String[] servers;

  /**
   * Asks the servers in turn until one of them answers, before the deadline (by System.nanoTime).
   * Throws IOException if none of them answers, if there is no such topic, and if one of its
   * partitions has no leader.  The request does not create the topic.
   */
  TopicLeaders(
      String topic, String[] servers, String clientId, long deadlineNs,
      org.apache.spark.TaskContext task) throws java.io.IOException {
    byte[] name = topic.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    java.nio.ByteBuffer response = null;
    java.io.IOException last = new java.io.IOException("no server");
    for (int i = 0; response == null && i < servers.length; i++) {
      try {
        BrokerConnection connection = new BrokerConnection(servers[i], clientId, deadlineNs, task);
        response = askForMetadata(name, connection);
      } catch (java.io.IOException error) {
        last = error;
      }
    }
    if (response == null) throw last;
    try {
      readTopic(response, topic);
    } catch (RuntimeException error) {
      throw Wire.malformed(error);
    }
  }

  private static java.nio.ByteBuffer askForMetadata(byte[] topic, BrokerConnection connection)
      throws java.io.IOException {
    try {
      java.nio.ByteBuffer to = connection.request(METADATA, VERSION, true, 32 + topic.length);
      to.put((byte) 2);
      to.putLong(0L);
      to.putLong(0L);
      Wire.putUvarint(to, topic.length + 1);
      to.put(topic);
      to.put((byte) 0);
      // No topic is to be created, and authorized operations are not asked for.
      to.putShort((short) 0);
      to.put((byte) 0);
      return connection.sendAndReceive();
    } finally {
      connection.close();
    }
  }

  private void readTopic(java.nio.ByteBuffer response, String topic) throws java.io.IOException {
    java.util.HashMap nodes = new java.util.HashMap();
    Wire.skipTags(response);
    response.getInt();
    int count = Wire.count(response);
    for (int i = 0; i < count; i++) {
      Integer id = Integer.valueOf(response.getInt());
      String host = Wire.text(response);
      nodes.put(id, host + ":" + response.getInt());
      Wire.text(response);
      Wire.skipTags(response);
    }
    Wire.text(response);
    response.getInt();
    if (Wire.count(response) != 1) throw new java.io.IOException("the topic is not told");
    short error = response.getShort();
    if (error != 0) throw new java.io.IOException("Metadata: error " + error);
    if (!Wire.text(response).equals(topic)) throw new java.io.IOException("another topic is told");
    topicIdHigh = response.getLong();
    topicIdLow = response.getLong();
    if (topicIdHigh == 0L && topicIdLow == 0L) throw new java.io.IOException("topics have no ids");
    response.get();
    readPartitions(response, nodes);
  }

  private void readPartitions(java.nio.ByteBuffer response, java.util.HashMap nodes)
      throws java.io.IOException {
    int count = Wire.count(response);
    if (count == 0) throw new java.io.IOException("the topic has no partitions");
    servers = new String[count];
    for (int i = 0; i < count; i++) {
      response.getShort();
      int partition = response.getInt();
      servers[partition] = (String) nodes.get(Integer.valueOf(response.getInt()));
      response.getInt();
      for (int list = 0; list < 3; list++) Wire.skip(response, 4 * Wire.count(response));
      Wire.skipTags(response);
    }
    for (int i = 0; i < count; i++)
      if (servers[i] == null) throw new java.io.IOException("partition " + i + " has no leader");
  }
}
