"""Who leads the partitions of a topic, asked for from inside the JVM.

Owns: the Java of that question (Metadata v12).  Must not know what leaders are wanted for.
"""

from typing import Final

_JAVA: Final = r"""
final class TopicLeaders {
  long topicIdHigh;
  long topicIdLow;
  /** By partition, HOST:PORT. */
  String[] servers;

  /**
   * What the first server says that answers, before the deadline (of System.nanoTime).  Throws
   * IOException where none does, where there is no such topic, and where one of its partitions has
   * no leader.  No topic is created.
   */
  TopicLeaders(
      String topic, String[] servers, String client, long deadline,
      org.apache.spark.TaskContext task) throws java.io.IOException {
    byte[] name = topic.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    java.nio.ByteBuffer told = null;
    java.io.IOException last = new java.io.IOException("no server");
    for (int i = 0; told == null && i < servers.length; i++) {
      try {
        told = answer(name, new BrokerConnection(servers[i], client, deadline, task));
      } catch (java.io.IOException error) {
        last = error;
      }
    }
    if (told == null) throw last;
    try {
      learn(told, topic);
    } catch (RuntimeException error) {
      throw Wire.malformed(error);
    }
  }

  private static java.nio.ByteBuffer answer(byte[] topic, BrokerConnection connection)
      throws java.io.IOException {
    try {
      java.nio.ByteBuffer to = connection.request(3, 12, true, 32 + topic.length);
      to.put((byte) 2);
      to.putLong(0L);
      to.putLong(0L);
      Wire.putUvarint(to, topic.length + 1);
      to.put(topic);
      to.put((byte) 0);
      // Neither to be created, nor with its permissions.
      to.putShort((short) 0);
      to.put((byte) 0);
      return connection.ask();
    } finally {
      connection.close();
    }
  }

  private void learn(java.nio.ByteBuffer answer, String topic) throws java.io.IOException {
    java.util.HashMap nodes = new java.util.HashMap();
    Wire.skipTags(answer);
    answer.getInt();
    int count = Wire.count(answer);
    for (int i = 0; i < count; i++) {
      Integer id = Integer.valueOf(answer.getInt());
      String host = Wire.text(answer);
      nodes.put(id, host + ":" + answer.getInt());
      Wire.text(answer);
      Wire.skipTags(answer);
    }
    Wire.text(answer);
    answer.getInt();
    if (Wire.count(answer) != 1) throw new java.io.IOException("the topic is not told");
    short error = answer.getShort();
    if (error != 0) throw new java.io.IOException("Metadata: error " + error);
    if (!Wire.text(answer).equals(topic)) throw new java.io.IOException("another topic is told");
    topicIdHigh = answer.getLong();
    topicIdLow = answer.getLong();
    if (topicIdHigh == 0L && topicIdLow == 0L) throw new java.io.IOException("topics have no ids");
    answer.get();
    learnPartitions(answer, nodes);
  }

  private void learnPartitions(java.nio.ByteBuffer answer, java.util.HashMap nodes)
      throws java.io.IOException {
    int count = Wire.count(answer);
    if (count == 0) throw new java.io.IOException("the topic has no partitions");
    servers = new String[count];
    for (int i = 0; i < count; i++) {
      answer.getShort();
      int partition = answer.getInt();
      servers[partition] = (String) nodes.get(Integer.valueOf(answer.getInt()));
      answer.getInt();
      for (int list = 0; list < 3; list++) Wire.skip(answer, 4 * Wire.count(answer));
      Wire.skipTags(answer);
    }
    for (int i = 0; i < count; i++)
      if (servers[i] == null) throw new java.io.IOException("partition " + i + " has no leader");
  }
}
"""


def topic_leaders_java() -> str:
    """The class ``TopicLeaders``, for inside others that have ``BrokerConnection``."""
    return _JAVA
