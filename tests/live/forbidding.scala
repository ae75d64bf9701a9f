// Sessions in which SQL may not call methods of Java, as on clusters that several users share.

package qod.forbidding

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionInfo}

class Forbidding extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    Seq("reflect", "java_method", "try_reflect").foreach { name =>
      val refused = (_: Seq[Expression]) => throw new SecurityException(s"$name is not allowed here")
      extensions.injectFunction((FunctionIdentifier(name), new ExpressionInfo(classOf[Forbidding].getName, name), refused))
    }
}
