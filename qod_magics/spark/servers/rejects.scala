// Sends malformed records to a topic of rejects, from within the plan of a query: `reflect` calls `send` for each.
//
// A task ends only when all that it has sent is acknowledged, and fails if something was not. Its batch is then read
// again: rejects are delivered at least once.

package org.apache.spark.sql.kafka010

import java.{util => ju}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.serialization.ByteArraySerializer

import org.apache.spark.{SparkException, TaskContext}

object Rejects {
  /** The setting with the options of the producer, a JSON object. Its name has it redacted where settings are shown. */
  private val Options = "spark.qod.secret.rejects"

  private type Producer = KafkaProducer[Array[Byte], Array[Byte]]
  private val producers = new ConcurrentHashMap[String, Producer]
  private val tasks = new ConcurrentHashMap[Long, Task]

  /** Sends a record; key and value are base64, or null. */
  def send(topic: String, reason: String, from: String, partition: Int, offset: Long, key: String, value: String)
      : String = {
    val record = new ProducerRecord(topic, null: Integer, decoded(key), decoded(value))
    for ((name, text) <- Seq(
        "qod.reason" -> reason, "qod.topic" -> from, "qod.partition" -> partition.toString, "qod.offset" -> offset.toString))
      record.headers.add(name, text.getBytes(UTF_8))
    task().send(record)
    "sent"
  }

  private def decoded(text: String): Array[Byte] = if (text == null) null else Base64.getMimeDecoder.decode(text)

  private def task(): Task = {
    val context = TaskContext.get()
    tasks.computeIfAbsent(context.taskAttemptId(), id => {
      val made = new Task(producers.computeIfAbsent(context.getLocalProperty(Options), producer))
      context.addTaskCompletionListener[Unit] { _ =>
        tasks.remove(id)
        made.end()
      }
      made
    })
  }

  private def producer(options: String): Producer = {
    val given = new ObjectMapper().readValue(options, classOf[ju.HashMap[String, Object]])
    given.put("acks", "all")
    given.put("linger.ms", "20")
    val bytes = new ByteArraySerializer
    new KafkaProducer(given, bytes, bytes)
  }

  private class Task(producer: Producer) {
    @volatile private var failure: Exception = _

    def send(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
      check()
      producer.send(record, (_: RecordMetadata, error: Exception) => if (error != null) failure = error)
    }

    def end(): Unit = {
      producer.flush()
      check()
    }

    private def check(): Unit =
      if (failure != null) throw new SparkException(s"a malformed record can't be written to the topic of rejects: ${failure.getMessage}", failure)
  }
}
