"""Which writes are sent from inside the JVM, and where to.

Owns: the Java that reads this from a write's options, in the driver.  Must not know what is sent.

Python parses the options, too, and says what is wrong with them before a task runs.  What is
unusual is left to it as well: other acknowledgements than all, compression, and clusters that only
it can find.
"""

from typing import Final

from sparklog.dataframe.discovery import ANNOUNCED_PROPERTY
from sparklog.dataframe.jvm.jvm_class import filled
from sparklog.dataframe.options import BUFFER_BYTES, CLIENT_ID, DELIVERY_TIMEOUT_MS

#: How long the JVM waits for a broker before it leaves the rest to Python, which has all of
#: ``kafka.delivery.timeout.ms`` then; at most half of that.
PATIENCE_MS: Final = 10_000
#: Others are for Python, which may read them differently, or refuses them.
LEGAL_TOPIC: Final = "[a-zA-Z0-9._-]{1,249}"

_JAVA: Final = r"""
  private static final class Destination {
    /** Null: Python sends. */
    static String[] of(CaseInsensitiveStringMap options) {
      String topic = options.get("topic");
      if (!topic.matches("LEGAL")) return null;
      if (!(isUnlessGiven("all", options.get("kafka.acks"))
          || isUnlessGiven("-1", options.get("kafka.acks")))) return null;
      if (!isUnlessGiven("true", options.get("kafka.enable.idempotence"))
          || !isUnlessGiven("none", options.get("kafka.compression.type"))) return null;
      String servers = options.get("kafka.bootstrap.servers");
      if (servers == null) servers = options.get("bootstrap.servers");
      if (servers == null) servers = System.getProperty("ANNOUNCED");
      if (servers == null) return null;
      try {
        long timeout = number(options.get("kafka.delivery.timeout.ms"), TIMEOUT);
        long buffer = number(options.get("kafka.buffer.memory"), BUFFER);
        String client = options.get("kafka.client.id");
        long patience = Math.max(1L, Math.min(PATIENCE, timeout / 2));
        return new String[] {
            servers, topic, client == null ? "CLIENT_ID" : client, String.valueOf(patience),
            String.valueOf(buffer)};
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
"""


def destination_java() -> str:
    """The class ``Destination``, for inside another one."""
    named = {
        "LEGAL": LEGAL_TOPIC,
        "ANNOUNCED": ANNOUNCED_PROPERTY,
        "TIMEOUT": f"{DELIVERY_TIMEOUT_MS}L",
        "BUFFER": f"{BUFFER_BYTES}L",
        "CLIENT_ID": CLIENT_ID,
        "PATIENCE": f"{PATIENCE_MS}L",
    }
    return filled(_JAVA, named)
