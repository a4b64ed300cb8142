/*
 * A scan of the Python source whose partitions give batches instead of rows.
 *
 * Owns: the bytes of a pickled partition that say which of both it gives.
 * Must not know: what a partition reads.
 */
package sparklog.dataframe;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.StructType;

final class BatchesScan implements Scan, Batch {
  private static final byte[] ROWS = Constants.GIVE_ROWS.getBytes(StandardCharsets.US_ASCII);
  private static final byte[] BATCHES =
      Constants.GIVE_BATCHES.getBytes(StandardCharsets.US_ASCII);
  private final Scan rows;
  private final Batch batch;

  BatchesScan(Scan rows) {
    this.rows = rows;
    this.batch = rows.toBatch();
  }

  public StructType readSchema() {
    return rows.readSchema();
  }

  public String description() {
    return rows.description();
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return rows.columnarSupportMode();
  }

  public CustomMetric[] supportedCustomMetrics() {
    return rows.supportedCustomMetrics();
  }

  public Batch toBatch() {
    return this;
  }

  public PartitionReaderFactory createReaderFactory() {
    return batch.createReaderFactory();
  }

  public InputPartition[] planInputPartitions() {
    InputPartition[] planned = batch.planInputPartitions();
    InputPartition[] changed = new InputPartition[planned.length];
    for (int i = 0; i < changed.length; i++) {
      PythonInputPartition partition = (PythonInputPartition) planned[i];
      changed[i] = new PythonInputPartition(partition.index(),
          givingBatches(partition.pickedPartition()));
    }
    return changed;
  }

  /** A pickled partition that gives batches, from one that gives rows. */
  private static byte[] givingBatches(byte[] pickled) {
    for (int i = 0; i + ROWS.length <= pickled.length; i++) {
      if (!Arrays.equals(Arrays.copyOfRange(pickled, i, i + ROWS.length), ROWS)) continue;
      byte[] found = (byte[]) pickled.clone();
      System.arraycopy(BATCHES, 0, found, i, BATCHES.length);
      return found;
    }
    throw new IllegalStateException("a partition does not say what it gives");
  }
}
