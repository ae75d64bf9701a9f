// Gives the state of a stopped query to other instances of its task: each keeps the groups of its own keys.
//
// State is kept by operator and shuffle partition. A group belongs to the instance that reads the partition of Kafka to
// which the sender sends its key: pmod(xxhash64(key), partitions).

package org.apache.spark.sql.execution.streaming.state

import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.deploy.SparkHadoopUtil
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeRow, XxHash64}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

object StateAssignment {

  /** Writes one more version of the state in a checkpoint, with the groups of its own keys from all sources.
   *
   * @param target a checkpoint that is a copy of the first source; no query uses it
   * @param sources a line for each checkpoint: the number of its last ended batch, a space, and its location
   * @param column the column of the state's key that decides the partition of Kafka
   * @param partitions how many of these there are
   * @param own those of this instance, separated by commas
   * @return how many groups it has kept, taken over and left out
   */
  def assign(target: String, sources: String, column: String, partitions: Int, own: String): String = {
    val mine = own.split(",").map(_.toLong).toSet
    val (first :: others) = sources.split("\n").toList.map { line =>
      val Array(batch, place) = line.split(" ", 2)
      (batch.toLong, place)
    }: @unchecked
    val run = UUID.randomUUID()
    val conf = new Configuration(SparkHadoopUtil.get.conf)
    conf.set(StreamExecution.RUN_ID_KEY, run.toString)
    val root = new Path(target, "state")
    val listed = root.getFileSystem(conf).listStatus(root).toSeq.map(_.getPath.getName)
    var (kept, taken, left) = (0L, 0L, 0L)
    for (operator <- listed.filter(_.forall(_.isDigit)).map(_.toLong)) {
      val state = new Operator(operator, column, run, conf, root)
      for (part <- 0 until state.parts) {
        val provider = state.provider(target, part)
        try {
          val store = provider.getStore(first._1 + 1)
          try {
            state.each(store) { (key, _) =>
              if (mine(state.partition(key, partitions))) kept += 1
              else {
                store.remove(key)
                left += 1
              }
            }
            for ((batch, place) <- others) {
              val other = state.provider(place, part)
              try {
                val read = other.getReadStore(batch + 1)
                try {
                  state.each(read) { (key, value) =>
                    if (mine(state.partition(key, partitions))) {
                      val known = store.get(key, StateStore.DEFAULT_COL_FAMILY_NAME)
                      require(known == null, "a group is in two checkpoints")
                      store.put(key, value)
                      taken += 1
                    }
                  }
                } finally read.release()
              } finally other.close()
            }
            store.commit()
          } finally if (!store.hasCommitted) store.abort()
        } finally provider.close()
      }
    }
    s"$kept $taken $left"
  }

  /** One operator that keeps state, in all checkpoints of the task. */
  private class Operator(number: Long, column: String, run: UUID, conf: Configuration, root: Path) {
    private val told = new OperatorStateMetadataV1Reader(new Path(root, number.toString), conf).read()
      .getOrElse(throw new IllegalArgumentException(s"operator $number has no metadata"))
    private val name = told.operatorInfo.operatorName
    private val stores: Seq[StateStoreMetadata] = told match { // Spark 4.1 has no name for either of them
      case first: OperatorStateMetadataV1 => first.stateStoreInfo.toSeq
      case second: OperatorStateMetadataV2 => second.stateStoreInfo.toSeq
    }
    require(stores.size == 1, s"$name keeps several stores")
    require(stores.head.numColsPrefixKey == 0, s"$name searches its state by the begin of the key")
    val parts: Int = stores.head.numPartitions

    private val schema = {
      val id = StateStoreProviderId(StateStoreId(root.toString, number, StateStore.PARTITION_ID_TO_CHECK_SCHEMA), run)
      new StateSchemaCompatibilityChecker(id, conf).readSchemaFile().head
    }
    private val keys: StructType = schema.keySchema
    require(keys.fieldNames.contains(column), s"$name keeps its state by ${keys.fieldNames.mkString(", ")}")
    private val hash = {
      val at = keys.fieldIndex(column)
      XxHash64(Seq(BoundReference(at, keys(at).dataType, nullable = true)), 42L)
    }

    def partition(key: UnsafeRow, partitions: Int): Long =
      Math.floorMod(hash.eval(key).asInstanceOf[Long], partitions.toLong)

    def provider(checkpoint: String, part: Int): StateStoreProvider =
      StateStoreProvider.createAndInit(
        StateStoreProviderId(StateStoreId(new Path(checkpoint, "state").toString, number, part), run),
        keys, schema.valueSchema, NoPrefixKeyStateEncoderSpec(keys), useColumnFamilies = false,
        new StateStoreConf(SQLConf.get), conf, false, None)

    def each(store: ReadStateStore)(act: (UnsafeRow, UnsafeRow) => Unit): Unit = {
      val rows = store.iterator(StateStore.DEFAULT_COL_FAMILY_NAME)
      try rows.foreach(pair => act(pair.key.copy(), pair.value.copy()))
      finally rows.close()
    }
  }
}
