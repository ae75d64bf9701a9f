// A Connect server whose settings nobody may change, as where an administrator has fixed them.

package qod.frozen

import org.apache.spark.connect.proto.ConfigRequest
import org.sparkproject.connect.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener
import org.sparkproject.connect.grpc.{Metadata, ServerCall, ServerCallHandler, ServerInterceptor, Status}

class Frozen extends ServerInterceptor {
  override def interceptCall[Q, A](
      call: ServerCall[Q, A], headers: Metadata, next: ServerCallHandler[Q, A]): ServerCall.Listener[Q] =
    new SimpleForwardingServerCallListener[Q](next.startCall(call, headers)) {
      private var refused = false

      override def onMessage(message: Q): Unit = message match {
        case asked: ConfigRequest if asked.getOperation.hasSet || asked.getOperation.hasUnset =>
          refused = true
          call.close(Status.FAILED_PRECONDITION.withDescription("settings are fixed here"), new Metadata)
        case _ => super.onMessage(message)
      }

      override def onHalfClose(): Unit = if (!refused) super.onHalfClose()
    }
}
