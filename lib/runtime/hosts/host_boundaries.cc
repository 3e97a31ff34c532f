#include "lib/runtime/hosts/host_boundaries.h"

#include <fmt/format.h>

#include <cstring>

#include "lib/runtime/hosts/chosen_rows.h"

namespace ktx::runtime {

std::span<std::byte> HostBoundaries::rows_of(const program::View& operand,
                                             const Batch& batch) const {
  const program::Value& value = program_.values[operand.value];
  return {arena_.place(value),
          static_cast<size_t>(batch.rows(value.rows) * program::row_bytes(value))};
}

bool HostBoundaries::has_chosen_rows(const program::Step& step) {
  return step.inputs.size() == 3 && step.inputs[1].value != program::kAbsent;
}

Status HostBoundaries::put_chosen_rows(const program::Step& step, const Batch& batch,
                                       MessageWriter& out) const {
  const auto ints = [&](size_t i) {
    const std::span<const std::byte> bytes = rows_of(step.inputs[i], batch);
    return std::span(reinterpret_cast<const int32_t*>(bytes.data()), bytes.size() / 4);
  };
  const program::View& x = step.inputs[0];
  const int64_t per_token = program_.values[x.value].rows_per_row;
  const auto chosen = chosen_rows(ints(1), ints(2), batch.tokens, per_token);
  if (!chosen) return Error{"the experts' order or offsets are damaged"};
  out.put_list(std::span(*chosen));
  const std::span<const std::byte> all = rows_of(x, batch);
  const size_t bytes = all.size() / static_cast<size_t>(batch.tokens * per_token);
  for (const uint32_t row : *chosen) out.put_bytes(all.subspan(row * bytes, bytes));
  return {};
}

// Rows that do not come stay as they are, and are not used.
bool HostBoundaries::take_chosen_rows(const program::Step& step, const Batch& batch,
                                      MessageReader& in) const {
  const program::View& y = step.outputs[0];
  const std::span<std::byte> all = rows_of(y, batch);
  const auto rows = static_cast<size_t>(batch.tokens * program_.values[y.value].rows_per_row);
  const size_t bytes = all.size() / rows;
  for (const uint32_t row : in.get_list<uint32_t>(rows)) {
    const std::span<const std::byte> from = in.get_bytes(bytes);
    if (!in.ok() || row >= rows) return false;
    std::memcpy(all.data() + row * bytes, from.data(), bytes);
  }
  return in.ok();
}

bool HostBoundaries::gives_up(const ForwardWatch* watch) {
  return group_.stopped().load() || (watch && watch->stopped());
}

Result<bool> HostBoundaries::run(size_t part, const Batch& batch, const ForwardWatch* watch) {
  if (parts_.parts[part].device == group_.rank()) return receive_values(part, batch, watch);
  KTX_TRY(send_values(part, batch));
  return true;
}

Status HostBoundaries::send_linked(size_t part, const Batch& batch) {
  const Part& own = parts_.parts[part];
  std::vector<LinkedBoundaries::Piece> pieces;
  for (const program::Step& step : own.steps(program_)) {
    const program::View& in = step.inputs[0];
    pieces.push_back({links_.place(in.value).data, rows_of(in, batch).size()});
  }
  const uint64_t bytes = KTX_TRY(links_.prepare(part, pieces));
  MessageWriter out({MessageKind::Values, static_cast<uint32_t>(part), group_.pass()});
  KTX_TRY(group_.send(own.device, out.put(bytes).take()));
  return links_.send(part, bytes);
}

Status HostBoundaries::take_linked(size_t part, const Batch& batch, const MessageBytes& message) {
  const Part& own = parts_.parts[part];
  std::vector<LinkedBoundaries::Piece> pieces;
  uint64_t bytes = 0;
  for (const program::Step& step : own.steps(program_)) {
    const program::View& out = step.outputs[0];
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

Status HostBoundaries::send_values(size_t part, const Batch& batch) {
  if (links_.takes(part, batch)) return send_linked(part, batch);
  const Part& own = parts_.parts[part];
  MessageWriter out({MessageKind::Values, static_cast<uint32_t>(part), group_.pass()});
  for (const program::Step& step : own.steps(program_)) {
    if (has_chosen_rows(step)) {
      KTX_TRY(put_chosen_rows(step, batch, out));
    } else {
      out.put_bytes(rows_of(step.inputs[0], batch));
    }
  }
  MessageBytes message = out.take();
  if (message.size() > kMostMessageBytes) {
    return Error{
        fmt::format("{} bytes for {} are more than a message holds; write a smaller --chunk",
                    message.size(), group_.name(own.device))};
  }
  return group_.send(own.device, std::move(message));
}

Result<bool> HostBoundaries::receive_values(size_t part, const Batch& batch,
                                            const ForwardWatch* watch) {
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
  for (const program::Step& step : own.steps(program_)) {
    if (has_chosen_rows(step)) {
      if (!take_chosen_rows(step, batch, in)) break;
      continue;
    }
    const std::span<std::byte> to = rows_of(step.outputs[0], batch);
    const std::span<const std::byte> from = in.get_bytes(to.size());
    if (in.ok() && !to.empty()) std::memcpy(to.data(), from.data(), to.size());
  }
  if (in.at_end()) return true;
  return Error{
      fmt::format("{} has sent {} bytes, which are not the values of part {} for {} tokens",
                  group_.name(own.from), message.size(), part, batch.tokens)};
}

}  // namespace ktx::runtime
