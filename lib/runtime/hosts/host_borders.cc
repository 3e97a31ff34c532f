#include "lib/runtime/hosts/host_borders.h"

#include <fmt/format.h>

#include <cstring>

#include "lib/plan/memory.h"

namespace ktx::runtime {

std::span<std::byte> HostBorders::rows_of(const plan::OperandRecord& operand,
                                          const Batch& batch) const {
  const plan::ValueRecord& value = plan_.values[operand.value];
  const int64_t rows = batch.rows(static_cast<RowKind>(value.rows));
  return {arena_.place(value), static_cast<size_t>(rows) * plan::value_row_bytes(value)};
}

bool HostBorders::gives_up(const PassWatch* watch) {
  return group_.stopped().load() || (watch && watch->stopped());
}

Result<bool> HostBorders::run(size_t part, const Batch& batch, const PassWatch* watch) {
  if (parts_.parts[part].device == group_.rank()) return receive_values(part, batch, watch);
  KTX_TRY(send_values(part, batch));
  return true;
}

Status HostBorders::send_linked(size_t part, const Batch& batch) {
  const Part& own = parts_.parts[part];
  std::vector<LinkedBorders::Piece> pieces;
  for (const plan::StepRecord& step : plan_.steps.subspan(own.first_step, own.step_count)) {
    const plan::OperandRecord& in = plan_.inputs(step)[0];
    pieces.push_back({links_.place(in.value).data, rows_of(in, batch).size()});
  }
  const uint64_t bytes = KTX_TRY(links_.prepare(part, pieces));
  MessageWriter out({MessageKind::Values, static_cast<uint32_t>(part), group_.pass()});
  KTX_TRY(group_.send(own.device, out.put(bytes).take()));
  return links_.send(part, bytes);
}

Status HostBorders::take_linked(size_t part, const Batch& batch, const MessageBytes& message) {
  const Part& own = parts_.parts[part];
  std::vector<LinkedBorders::Piece> pieces;
  uint64_t bytes = 0;
  for (const plan::StepRecord& step : plan_.steps.subspan(own.first_step, own.step_count)) {
    const plan::OperandRecord& out = plan_.outputs(step)[0];
    pieces.push_back({links_.place(out.value).data, rows_of(out, batch).size()});
    bytes += pieces.back().bytes;
  }
  MessageReader in(message);
  if (in.get<uint64_t>() != bytes || !in.at_end()) {
    return Error{fmt::format("{} sends other values than those of part {} for {} tokens",
                             group_.name(own.from), part, batch.tokens)};
  }
  return links_.receive(part, pieces);
}

Status HostBorders::send_values(size_t part, const Batch& batch) {
  if (links_.takes(part, batch)) return send_linked(part, batch);
  const Part& own = parts_.parts[part];
  MessageWriter out({MessageKind::Values, static_cast<uint32_t>(part), group_.pass()});
  for (const plan::StepRecord& step : plan_.steps.subspan(own.first_step, own.step_count)) {
    out.put_bytes(rows_of(plan_.inputs(step)[0], batch));
  }
  MessageBytes message = out.take();
  if (message.size() > kMostMessageBytes) {
    return Error{
        fmt::format("{} bytes for {} are more than a message holds; write a smaller --chunk",
                    message.size(), group_.name(own.device))};
  }
  return group_.send(own.device, std::move(message));
}

Result<bool> HostBorders::receive_values(size_t part, const Batch& batch, const PassWatch* watch) {
  const Part& own = parts_.parts[part];
  const int64_t pass = group_.pass();
  // Values of a pass that was stopped may still have been on their way.
  const auto pick = [&](const MessageHead& head) {
    if (head.kind != MessageKind::Values || head.pass > pass) return HostGroup::Pick::Leave;
    if (head.pass < pass) return HostGroup::Pick::Drop;
    return head.part == part ? HostGroup::Pick::Take : HostGroup::Pick::Leave;
  };
  const MessageBytes message = KTX_TRY(group_.wait(own.from,
                                                   {.until =
                                                        [&] {
                                                          links_.drain(pass - 1);
                                                          return gives_up(watch);
                                                        }},
                                                   pick));
  if (message.empty()) return given_up();
  if (links_.takes(part, batch)) {
    KTX_TRY(take_linked(part, batch, message));
    return true;
  }
  MessageReader in(message);
  for (const plan::StepRecord& step : plan_.steps.subspan(own.first_step, own.step_count)) {
    const std::span<std::byte> to = rows_of(plan_.outputs(step)[0], batch);
    const std::span<const std::byte> from = in.get_bytes(to.size());
    if (in.ok() && !to.empty()) std::memcpy(to.data(), from.data(), to.size());
  }
  if (in.at_end()) return true;
  return Error{
      fmt::format("{} has sent {} bytes, which are not the values of part {} for {} tokens",
                  group_.name(own.from), message.size(), part, batch.tokens)};
}

}  // namespace ktx::runtime
