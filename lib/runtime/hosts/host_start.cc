#include "lib/runtime/hosts/host_start.h"

namespace ktx::runtime {

MessageBytes HostStart::message() const {
  MessageWriter out({MessageKind::Start, 0, 0});
  out.put_text(version).put(plan_hash).put(shape).put(kv_blocks).put(precision);
  return out.put(count_experts).take();
}

Result<HostStart> HostStart::read(const MessageBytes& message) {
  MessageReader in(message);
  HostStart start;
  start.version = in.get_text();
  if (in.ok() && start.version != KTX_VERSION) return start;  // the rest may be something else
  start.plan_hash = in.get<Hash128>();
  start.shape = in.get<plan::RunShape>();
  start.kv_blocks = in.get<plan::KvBlocks>();
  start.precision = in.get<int32_t>();
  start.count_experts = in.get<bool>();
  const plan::RunShape& shape = start.shape;
  const bool sound = shape.ctx > 0 && shape.max_batch > 0 && shape.step_tokens > 0 &&
                     shape.step_outputs > 0 && shape.kv_type <= plan::KvType::Q8_0 &&
                     (start.precision == 0 || start.precision == 1);
  if (in.at_end() && sound) return start;
  return Error{"the first host has sent a damaged start message"};
}

MessageBytes HostReady::message() const {
  return MessageWriter({MessageKind::Ready, 0, 0}).put_text(error).put_text(note).put(links).take();
}

Result<HostReady> HostReady::read(const MessageBytes& message) {
  MessageReader in(message);
  HostReady ready{in.get_text(), in.get_text(), in.get<bool>()};
  if (in.at_end()) return ready;
  return Error{"its answer is damaged"};
}

MessageBytes HostForwardOver::message(int64_t pass) const {
  MessageWriter out({MessageKind::ForwardOver, 0, pass});
  return out.put_text(error).put(weight_bytes).put(expert_pairs).take();
}

Result<HostForwardOver> HostForwardOver::read(const MessageBytes& message) {
  MessageReader in(message);
  HostForwardOver over{in.get_text(), in.get<int64_t>(), in.get<int64_t>()};
  if (in.at_end()) return over;
  return Error{"its answer is damaged"};
}

}  // namespace ktx::runtime
