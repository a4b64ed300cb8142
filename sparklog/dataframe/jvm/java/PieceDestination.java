/*
 * The destination of a write's pieces, if they are sent from inside the JVM.
 *
 * Owns: which writes are sent from the JVM, and where to, read from their options in the driver.
 * Must not know: what is sent.
 *
 * Python parses the options as well, and says what is wrong with them before a task runs.  Unusual
 * writes are left to Python: other acknowledgements than all, compression, and clusters that only
 * Python can find.
 */
package sparklog.dataframe;

import org.apache.spark.sql.util.CaseInsensitiveStringMap;

final class PieceDestination {
  /** Topics with other names are for Python, which may read them differently, or refuses them. */
  private static final String LEGAL_TOPIC = "[a-zA-Z0-9._-]{1,249}";
  /**
   * How long the JVM waits for a broker before it leaves the rest to Python, which then has all of
   * kafka.delivery.timeout.ms; at most half of that.
   */
  private static final long PATIENCE_MS = 10000L;

  private PieceDestination() {}

  /** Returns the destination that PieceSender takes, or null if Python sends. */
  static String[] of(CaseInsensitiveStringMap options) {
    String topic = options.get("topic");
    if (!topic.matches(LEGAL_TOPIC)) return null;
    if (!(isUnlessGiven("all", options.get("kafka.acks"))
        || isUnlessGiven("-1", options.get("kafka.acks")))) return null;
    if (!isUnlessGiven("true", options.get("kafka.enable.idempotence"))
        || !isUnlessGiven("none", options.get("kafka.compression.type"))) return null;
    String servers = options.get("kafka.bootstrap.servers");
    if (servers == null) servers = options.get("bootstrap.servers");
    if (servers == null) servers = System.getProperty(Constants.ANNOUNCED_PROPERTY);
    if (servers == null) return null;
    try {
      long timeout =
          number(options.get("kafka.delivery.timeout.ms"), Constants.DELIVERY_TIMEOUT_MS);
      long buffer = number(options.get("kafka.buffer.memory"), Constants.BUFFER_BYTES);
      String client = options.get("kafka.client.id");
      long patience = Math.max(1L, Math.min(PATIENCE_MS, timeout / 2));
      return new String[] {
          servers, topic, client == null ? Constants.CLIENT_ID : client,
          String.valueOf(patience), String.valueOf(buffer)};
    } catch (NumberFormatException error) {
      return null;
    }
  }

  private static boolean isUnlessGiven(String usual, String given) {
    return given == null || given.trim().equalsIgnoreCase(usual);
  }

  private static long number(String given, long otherwise) {
    return given == null ? otherwise : Long.parseLong(given.trim());
  }
}
