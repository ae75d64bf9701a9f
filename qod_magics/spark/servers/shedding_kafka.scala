// Spark's Kafka source with a load shedder in its reader: a record that is dropped never becomes a row of Spark.
//
// It has the columns, options, offsets and metrics of Spark's source, and two more columns:
//   _p        the probability with which this record was kept; 0 in a row that is no record and only counts others
//   _records  records read since the last row, up to this one
// The sum of `_records` is the number of records read, also when a task is tried again. Behind the last record of a
// range, a row with `_p` 0 counts those dropped after the last one kept.
//
// Option `qod.keep`: the name of a system property of the driver's JVM, the drop probability in units of 2^-53. It is
// read when a batch is planned and, where executors share that JVM, again every few records.
//
// Option `qod.pace`: the name of another property, the delay of the next batch in units of 2^-53 of `MostS` seconds. The
// batch is delayed before its offsets are settled, so that it reads what comes meanwhile.
//
// Option `qod.due`: the name of a third one, in units of 2^-53 of `LatestDueS` seconds. The batches of all queries with
// one above 0 take turns, before their offsets are settled: see `Turns`.

package org.apache.spark.sql.kafka010

import java.{lang => jl, util => ju}

import org.apache.kafka.clients.consumer.{ConsumerRecord, OffsetOutOfRangeException}

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, JoinedRow}
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.kafka010.consumer.{KafkaDataConsumer, KafkaDataConsumerIterator}
import org.apache.spark.sql.types.{DoubleType, LongType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

class SheddingKafka extends TableProvider {
  private val kafka = new KafkaSourceProvider

  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    SheddingKafka.counted(kafka.inferSchema(options))

  override def getTable(
      schema: StructType, partitioning: Array[Transform], properties: ju.Map[String, String]): Table =
    new SheddingTable(kafka.getTable(new CaseInsensitiveStringMap(properties)))
}

object SheddingKafka {
  val Keep = "qod.keep"
  val Pace = "qod.pace"
  val Due = "qod.due"
  private val MostS = 10.0
  private val LatestDueS = 100.0
  private val Parts = (1L << 53).toDouble

  def counted(schema: StructType): StructType =
    schema.add("_p", DoubleType, nullable = false).add("_records", LongType, nullable = false)

  /** The probability of keeping a record; None where the property is not set. */
  def probability(property: String): Option[Double] =
    Option(System.getProperty(property)).map(dropped => 1.0 - dropped.toLong / Parts)

  /** The delay of the next batch, milliseconds; 0 without the property, or without a name of one. */
  def delayMs(property: String): Long =
    Option(property).flatMap(probability).fold(0L)(kept => ((1.0 - kept) * MostS * 1000).toLong)

  /** How long after its oldest record a batch is due, ns; None where batches take no turns. */
  def dueNs(property: String): Option[Long] =
    Option(property).flatMap(probability).filter(_ < 1.0).map(kept => ((1.0 - kept) * LatestDueS * 1e9).toLong)
}

/** The turns of this JVM's queries: as many batches as there are cores are under way. A batch beyond them waits until one
  * ends and no waiting one is due earlier, or until it is due: a batch under way can't be interrupted, so the cores are
  * shared then. */
private object Turns {
  private val LookMs = 200L // between looks at the dials while a batch waits
  private class Asking(var due: Long)

  private val cores = Runtime.getRuntime.availableProcessors
  private val waiting = scala.collection.mutable.Set[Asking]()
  private val underWay = scala.collection.mutable.Set[AnyRef]()

  /** Waits for a turn until the batch is due, so many ns after `oldest` (as `System.nanoTime`), and takes it. The dial
    * says when, and may be turned meanwhile: a batch that waited by an earlier plan would let all others pass. Returns
    * whether it waited. */
  def take(of: AnyRef, oldest: Long, property: String): Boolean = synchronized {
    val asking = new Asking(oldest)
    def remainsNs(): Long = { // 0 or less: due, or batches take no turns
      asking.due = oldest + SheddingKafka.dueNs(property).getOrElse(0L)
      asking.due - System.nanoTime
    }
    waiting += asking
    var waited = false
    try {
      var ns = remainsNs()
      while (ns > 0 && !isNext(asking)) {
        waited = true
        wait(math.min(math.max(ns / 1000000L, 1L), LookMs)) // stopping the query interrupts it
        ns = remainsNs()
      }
    } finally {
      waiting -= asking
      notifyAll()
    }
    underWay += of
    waited
  }

  def giveBack(of: AnyRef): Unit = synchronized {
    if (underWay.remove(of)) notifyAll()
  }

  private def isNext(asking: Asking) =
    underWay.size < cores && waiting.forall(other => asking.due - other.due <= 0)
}

private class SheddingTable(table: SupportsRead) extends SupportsRead {
  override def name(): String = table.name()
  override def schema(): StructType = SheddingKafka.counted(table.schema())
  override def capabilities(): ju.Set[TableCapability] = ju.Set.of(TableCapability.MICRO_BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val scan = table.newScanBuilder(options).build()
    val dials = Seq(SheddingKafka.Keep, SheddingKafka.Pace, SheddingKafka.Due).map(options.get)
    () => new SheddingScan(scan, dials)
  }
}

private class SheddingScan(scan: Scan, dials: Seq[String]) extends Scan {
  override def readSchema(): StructType = SheddingKafka.counted(scan.readSchema())
  override def description(): String = scan.description()
  override def supportedCustomMetrics() = scan.supportedCustomMetrics()
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
    new SheddingStream(scan.toMicroBatchStream(checkpoint).asInstanceOf[KafkaMicroBatchStream], dials)
}

private class SheddingStream(stream: KafkaMicroBatchStream, dials: Seq[String])
    extends MicroBatchStream with SupportsTriggerAvailableNow with SupportsRealTimeMode with ReportsSourceMetrics {
  import SheddingStream._

  private val Seq(property, pace, due) = dials
  private var arrived = false // whether records had arrived at the last look
  private var settled = 0L // when the offsets of the last batch were: what came since waits for the next one

  override def initialOffset(): Offset = stream.initialOffset()
  override def deserializeOffset(json: String): Offset = stream.deserializeOffset(json)
  override def getDefaultReadLimit: ReadLimit = stream.getDefaultReadLimit
  override def latestOffset(): Offset = stream.latestOffset()
  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    Turns.giveBack(this) // the batch before has ended
    val end = stream.latestOffset(start, limit)
    val delayMs = SheddingKafka.delayMs(pace)
    val follows = arrived
    val oldest = if (follows) settled else System.nanoTime
    arrived = end != start
    val delayed = arrived && delayMs > 0 && (follows || delayMs >= HoldMs)
    if (delayed) Thread.sleep(delayMs) // stopping the query interrupts it
    val waited = arrived && SheddingKafka.dueNs(due).nonEmpty && Turns.take(this, oldest, due)
    settled = System.nanoTime
    if (delayed || waited) stream.latestOffset(start, limit) else end
  }
  override def reportLatestOffset(): Offset = stream.reportLatestOffset()
  override def prepareForTriggerAvailableNow(): Unit = stream.prepareForTriggerAvailableNow()
  override def prepareForRealTimeMode(): Unit = stream.prepareForRealTimeMode()
  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = stream.mergeOffsets(offsets)
  override def commit(end: Offset): Unit = stream.commit(end)
  override def stop(): Unit = {
    Turns.giveBack(this)
    stream.stop()
  }
  override def metrics(latest: ju.Optional[Offset]): ju.Map[String, String] = stream.metrics(latest)
  override def toString: String = stream.toString

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    shedding(stream.planInputPartitions(start, end))
  override def planInputPartitions(start: Offset): Array[InputPartition] =
    shedding(stream.planInputPartitions(start))
  override def createReaderFactory(): PartitionReaderFactory = SheddingReaderFactory

  private def shedding(ranges: Array[InputPartition]): Array[InputPartition] = {
    val keep = SheddingKafka.probability(property).getOrElse(1.0)
    ranges.map(range => SheddingRange(range.asInstanceOf[KafkaBatchInputPartition], property, keep))
  }
}

private object SheddingStream {
  /** A shorter delay is for batches that follow one another; this or a longer one also holds one after idle time. */
  private val HoldMs = 4000L
}

private case class SheddingRange(range: KafkaBatchInputPartition, property: String, keep: Double)
    extends InputPartition {
  override def preferredLocations(): Array[String] = range.preferredLocations()
}

private object SheddingReaderFactory extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new SheddingReader(partition.asInstanceOf[SheddingRange])
}

private class SheddingReader(of: SheddingRange) extends SupportsRealTimeRead[InternalRow] {
  import SheddingReader._

  private val task = TaskContext.get()
  private val range = of.range.offsetRange
  private val partition = range.topicPartition
  private val consumer = KafkaDataConsumer.acquire(partition, of.range.executorKafkaParams)
  private val (from, until) = resolved()
  private val converter = new KafkaRecordToRowConverter
  private val toRow =
    if (of.range.includeHeaders) converter.toInternalRowWithHeaders else converter.toInternalRowWithoutHeaders
  private val noRecord = {
    val columns = Seq[Any](null, null, null, 0, -1L, 0L, 0)
    InternalRow.fromSeq(if (of.range.includeHeaders) columns :+ null else columns)
  }
  private val counts = new GenericInternalRow(2)
  private val row = new JoinedRow
  private val salt = partition.hashCode * Golden

  private var position = from
  private var records = 0L
  private var keep = of.keep
  private var untilRead = 0
  private var realTime: KafkaDataConsumerIterator = _

  override def next(): Boolean = {
    while (position < until) {
      val record = consumer.get(position, until, of.range.pollTimeoutMs, of.range.failOnDataLoss)
      if (record == null) position = until
      else if (keeps(record)) return true
    }
    countsOthers()
  }

  override def nextWithTimeout(timeoutMs: jl.Long): RecordStatus = {
    if (realTime == null) realTime = consumer.getIterator(position)
    val end = System.nanoTime() + timeoutMs * 1000000L
    var leftMs = timeoutMs.longValue
    while (leftMs > 0) {
      nextRecord(leftMs) match {
        case Some(record) =>
          if (keeps(record)) return RecordStatus.newStatusWithArrivalTimeMs(record.timestamp())
          leftMs = (end - System.nanoTime()) / 1000000L
        case None => leftMs = 0
      }
    }
    RecordStatus.newStatusWithoutArrivalTime(countsOthers()) // no call may follow: the batch is over
  }

  /** The next record; behind those that retention has deleted, if data may be lost: Spark's own reader fails there. */
  private def nextRecord(timeoutMs: Long): Option[ConsumerRecord[Array[Byte], Array[Byte]]] =
    try realTime.nextWithTimeout(timeoutMs)
    catch {
      case _: OffsetOutOfRangeException if !of.range.failOnDataLoss =>
        position = math.max(position, consumer.getAvailableOffsetRange().earliest)
        realTime = consumer.getIterator(position)
        realTime.nextWithTimeout(timeoutMs)
    }

  override def getOffset(): PartitionOffset = KafkaSourcePartitionOffset(partition, position)
  override def get(): InternalRow = row
  override def close(): Unit = consumer.release()

  override def currentMetricsValues(): Array[CustomTaskMetric] = Array(
    metric("offsetOutOfRange", consumer.getNumOffsetOutOfRange()), metric("dataLoss", consumer.getNumDataLoss()))

  /** Counts a record, and makes it the row if it is kept. */
  private def keeps(record: ConsumerRecord[Array[Byte], Array[Byte]]): Boolean = {
    position = record.offset + 1
    records += 1
    if (untilRead == 0) {
      task.killTaskIfInterrupted() // Spark looks at each row, and there may be none for long
      keep = SheddingKafka.probability(of.property).getOrElse(of.keep)
      untilRead = Each
    }
    untilRead -= 1
    uniform(salt + record.offset) < keep && {
      become(toRow(record), keep)
      true
    }
  }

  private def countsOthers(): Boolean = records > 0 && {
    become(noRecord, 0.0)
    true
  }

  private def become(record: InternalRow, p: Double): Unit = {
    counts.setDouble(0, p)
    counts.setLong(1, records)
    records = 0
    row(record, counts)
  }

  private def metric(of: String, count: Long) = new CustomTaskMetric {
    override def name(): String = of
    override def value(): Long = count
  }

  private def resolved(): (Long, Long) = {
    lazy val there = consumer.getAvailableOffsetRange()
    (if (range.fromOffset < 0) there.earliest else range.fromOffset,
      if (range.untilOffset < 0) there.latest else range.untilOffset)
  }
}

private object SheddingReader {
  /** Records between two looks at the property, and at whether the query is being stopped. */
  private val Each = 64
  private val Golden = 0x9E3779B97F4A7C15L

  /** Uniform in [0, 1), the same for the same record after any replay: the finalizer of SplitMix64. */
  private def uniform(seed: Long): Double = {
    val a = (seed ^ (seed >>> 30)) * 0xBF58476D1CE4E5B9L
    val b = (a ^ (a >>> 27)) * 0x94D049BB133111EBL
    ((b ^ (b >>> 31)) >>> 11) * (1.0 / (1L << 53))
  }
}
