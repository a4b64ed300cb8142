/*
 * The planner strategy that has Spark pack the rows of a write before they come to Python.
 *
 * Owns: which writes the strategy takes, and their plan; packed_writes.py says why.
 * Must not know: how records are laid out, how they travel.
 */
package sparklog.dataframe;

import java.util.Iterator;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class PackedWritesStrategy extends SwitchableStrategy {
  private final PackerText text;

  private PackedWritesStrategy(SparkSession session, AtomicBoolean refused, PackerText text) {
    super(session, Constants.PACKED_WRITES_CONF, Constants.WITHOUT_PACKED_WRITES, refused);
    this.text = text;
  }

  /** Makes the strategy of each session of an application. */
  public static class Builder extends scala.runtime.AbstractFunction1 {
    private final AtomicBoolean refused = new AtomicBoolean();
    private final PackerText text;

    /** The arguments are those of PackerText. */
    public Builder(String classes, String step) {
      text = new PackerText(classes, step);
    }

    public Object apply(Object session) {
      return new PackedWritesStrategy((SparkSession) session, refused, text);
    }
  }

  /** Spark's other strategies plan everything for which this one gives an empty sequence. */
  public Seq apply(LogicalPlan plan) {
    if (!isOurs(plan) || !isWanted()) return ScalaSeq.of();
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(
        CollectionConverters.asJava(((AppendData) plan).writeOptions()));
    StructType schema = ((V2WriteCommand) plan).query().schema();
    Packing packing = Packing.of(schema, options, text);
    if (packing == null || hasPython(((V2WriteCommand) plan).query())) return ScalaSeq.of();
    if (!isOff(Constants.DIRECT_WRITES_CONF))
      packing.destination = PieceDestination.of(options);
    if (packing.key >= 0 && packing.destination == null) return ScalaSeq.of();
    try {
      CodeGenerator.compile(text.step);
      packing.factory(null, null);
      return planned(plan, schema, options, packing);
    } catch (LinkageError error) {
      return refuse(error);
    } catch (Exception error) {
      return refuse(error);
    }
  }

  private static boolean isOurs(LogicalPlan plan) {
    if (!(plan instanceof AppendData)) return false;
    scala.Option write = ((AppendData) plan).write();
    Object target = ((V2WriteCommand) plan).table();
    if (write.isEmpty() || !(write.get() instanceof PythonWrite)
        || !(target instanceof DataSourceV2Relation)) return false;
    DataSourceV2Relation relation = (DataSourceV2Relation) target;
    return relation.table() instanceof PythonTable
        && "sparklog".equalsIgnoreCase(relation.table().name());
  }

  /**
   * Whether a step or an expression runs in Python.  In the packer's task it would see the setting
   * that the packer changes (Packer, ROWS_SETTING).
   */
  private static boolean hasPython(TreeNode node) {
    String name = node.getClass().getSimpleName();
    if (name.contains("Python") || name.contains("Pandas") || name.contains("Arrow")) return true;
    if (node instanceof QueryPlan && anyHasPython(((QueryPlan) node).expressions())) return true;
    return anyHasPython(node.children());
  }

  private static boolean anyHasPython(Seq nodes) {
    Iterator each = CollectionConverters.asJava(nodes).iterator();
    while (each.hasNext()) if (hasPython((TreeNode) each.next())) return true;
    return false;
  }

  /** The plan that Spark makes of a write of pieces, over the step that makes them. */
  private Seq planned(
      LogicalPlan plan, StructType schema, CaseInsensitiveStringMap options, Packing packing) {
    PythonTable table =
        (PythonTable) ((DataSourceV2Relation) ((V2WriteCommand) plan).table()).table();
    Object write = ((AppendData) plan).write();
    PiecesWriteInfo info = new PiecesWriteInfo(schema, options, packing.destination);
    Object[] fields = new Object[plan.productArity()];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = plan.productElement(i);
      if (fields[i] == write)
        fields[i] = new scala.Some(table.newWriteBuilder(info).build());
    }
    SparkStrategy strategy = new DataSourceV2Strategy(session());
    SparkPlan exec = (SparkPlan) strategy.apply((LogicalPlan) plan.makeCopy(fields)).apply(0);
    SparkPlan rows = (SparkPlan) exec.children().apply(0);
    Seq children = ScalaSeq.of(new PackRecordsExec(rows, packing));
    return ScalaSeq.of(exec.withNewChildren(children));
  }
}
