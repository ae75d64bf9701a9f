// Holds a task to a share of a core, from within the plan of a batch: `reflect` calls `hold` for every some hundredth
// record.
//
// Spark gives tasks no priority, so a batch that is to take little sleeps. What counts is the CPU time of the task's
// thread: time for which it waited for a core, or for the broker, is as good as slept. Where functions in Python do the
// work in processes of their own, all time that has passed counts.

package org.apache.spark.sql.kafka010

import java.lang.management.ManagementFactory
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

object Pace {
  /** The longest sleep, ns: a stop takes effect within it. */
  private val Longest = 2000000000L
  /** A longer wait than this, ns, is not made up for: later records sleep as if it had not been. */
  private val Credit = 1000000000L

  private val threads = ManagementFactory.getThreadMXBean
  private val tasks = new ConcurrentHashMap[Long, Task]

  /** Sleeps as long as this task must for at most this share of a core, above 0; `passed`: all time counts as used. */
  def hold(share: Double, passed: Boolean): String = {
    val context = TaskContext.get()
    val task = tasks.computeIfAbsent(context.taskAttemptId(), id => {
      context.addTaskCompletionListener[Unit] { _ => tasks.remove(id) }
      new Task
    })
    task.hold(share, passed)
    "held"
  }

  private class Task {
    private var used, due = 0L //: the thread's CPU time at the last call, and when the next one is due

    def hold(share: Double, passed: Boolean): Unit = {
      val now = System.nanoTime()
      val time = if (passed || !threads.isCurrentThreadCpuTimeSupported) now else threads.getCurrentThreadCpuTime
      if (used != 0L) {
        due = math.max(due + ((time - used) / share).toLong, now - Credit)
        val sleep = math.min(due - now, Longest)
        if (sleep > 1000000L) Thread.sleep(sleep / 1000000L)
      } else due = now
      used = if (passed || !threads.isCurrentThreadCpuTimeSupported) System.nanoTime() else threads.getCurrentThreadCpuTime
      if (passed) due = used
    }
  }
}
