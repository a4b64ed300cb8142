/*
 * The write of pieces, as the Python source is told of it.
 *
 * Owns: the schema of pieces, and the option that says the schema of the rows they are made of.
 * Must not know: how the rows become pieces.
 */
package sparklog.dataframe;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

final class PiecesWriteInfo implements LogicalWriteInfo {
  /** The columns of a row that is a piece. */
  static final StructType PIECES = StructType.fromDDL(Constants.ROW_COLUMNS);
  private final String id = java.util.UUID.randomUUID().toString();
  private final CaseInsensitiveStringMap options;

  /** The servers are an option because Python may have to go on where the JVM was sending. */
  PiecesWriteInfo(StructType schema, CaseInsensitiveStringMap given, String[] destination) {
    Map all = new HashMap(given.asCaseSensitiveMap());
    all.put(Constants.PACKED_OPTION, schema.json());
    if (destination != null && !given.containsKey("kafka.bootstrap.servers"))
      all.put("kafka.bootstrap.servers", destination[0]);
    options = new CaseInsensitiveStringMap(all);
  }

  public CaseInsensitiveStringMap options() {
    return options;
  }

  public String queryId() {
    return id;
  }

  public StructType schema() {
    return PIECES;
  }
}
