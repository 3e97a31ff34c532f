// The text form of a step program: one line per item, words of key=value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/program/program.h"
#include "lib/program/step_text.h"

namespace ktx::program {
namespace {

std::string print_view(const Program& program, const View& view) {
  if (view.value == kAbsent) return "-";
  return fmt::format("{}:{}:{}", quote(program.values[view.value].name), view.offset, view.width);
}

std::string print_views(const Program& program, const std::vector<View>& views) {
  std::string out;
  for (const View& view : views) out += (out.empty() ? "" : ",") + print_view(program, view);
  return out;
}

// Those that are not what the op has by default.
std::string print_attrs(const StepAttrs& attrs) {
  std::string out;
  std::visit(
      [&](auto copy) {
        decltype(copy) defaults;
        std::vector<std::string> usual;
        defaults.fields(
            [&](const char*, auto& field) { usual.push_back(fmt::format("{}", field)); });
        size_t i = 0;
        copy.fields([&](const char* name, auto& field) {
          const std::string text = fmt::format("{}", field);
          if (text != usual[i++]) out += fmt::format("{}{}:{}", out.empty() ? "" : ",", name, text);
        });
      },
      attrs);
  return out;
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string print_part(const program::Part& part) {
  const std::string from = part.from.empty() ? "" : " from=" + quote(part.from);
  return fmt::format("part kind={} device={}{} steps={}:{}\n", part_kind_name(part.kind),
                     quote(part.device), from, part.first_step, part.step_count);
}

std::string print_launch(const program::Launch& launch) {
  const auto most = [](int64_t value, int64_t none) {
    return value == none ? std::string("-") : std::to_string(value);
  };
  std::string out = fmt::format("launch kernel={}", quote(launch.kernel));
  if (launch.op) out += fmt::format(" fused={}", name(*launch.op));
  out += fmt::format(" steps={} tokens={}:{} sm={}:{}", fmt::join(launch.steps, ","),
                     launch.least_tokens, most(launch.most_tokens, kernels::kAnyRows),
                     launch.least_sm, most(launch.most_sm, kernels::kNewestSm));
  if (launch.needs != 0) out += " needs=" + kernels::needs_text(launch.needs);
  if (launch.least_run != 0) out += fmt::format(" run={}", launch.least_run);
  return out + "\n";
}

std::string print_blob(const Blob& blob) {
  std::string out = fmt::format(
      "blob name={} dtype={} layout={} rows={} cols={} matrices={} device={}", quote(blob.name),
      name(blob.dtype), name(blob.layout), blob.rows, blob.cols, blob.matrices, quote(blob.device));
  for (const TensorSlice& slice : blob.sources) {
    out += fmt::format(" from={}:{}:{}", quote(slice.tensor), slice.first_row, slice.row_count);
  }
  if (!blob.constant.empty()) out += fmt::format(" constant={}", fmt::join(blob.constant, ","));
  return out + "\n";
}

std::string print_step(const Program& program, const Step& step) {
  std::string out = fmt::format("step op={} module={} layer={} device={}", info(step.op).name,
                                quote(step.module), step.layer, quote(step.device));
  if (!step.inputs.empty()) out += " in=" + print_views(program, step.inputs);
  if (!step.outputs.empty()) out += " out=" + print_views(program, step.outputs);
  for (BlobId blob : step.weights) {
    out += " weight=" + (blob == kAbsent ? std::string("-") : quote(program.blobs[blob].name));
  }
  const std::string attrs = print_attrs(step.attrs);
  if (!attrs.empty()) out += " attrs=" + attrs;
  if (step.use != 1) out += fmt::format(" use={}", step.use);
  return out +
         fmt::format(" exact={} fast={}\n", or_dash(step.kernels[0]), or_dash(step.kernels[1]));
}

}  // namespace

std::string print_launches(const Program& program) {
  std::string out;
  for (const program::Part& part : program.parts) out += print_part(part);
  for (const program::FusedGroup& group : program.groups) {
    out += fmt::format("group fused={} steps={}\n", name(group.op), fmt::join(group.steps, ","));
  }
  for (const program::Launch& launch : program.launches) out += print_launch(launch);
  return out;
}

std::string print(const Program& program) {
  std::string out = "step-ir 1\n";
  for (const Buffer& buffer : program.buffers) {
    out += fmt::format("buffer fixed={} per_token={} per_output={}\n", buffer.fixed_bytes,
                       buffer.bytes_per_token, buffer.bytes_per_output);
  }
  for (const Value& value : program.values) {
    out += fmt::format("value name={} type={} rows={} rows_per_row={} width={} buffer={}\n",
                       quote(value.name), type_name(value.type), row_kind_name(value.rows),
                       value.rows_per_row, value.width, value.buffer);
  }
  for (const KvSlot& slot : program.kv_slots) {
    out += fmt::format("kv layer={} kv_heads={} key_dim={} value_dim={} device={}", slot.layer,
                       slot.kv_heads, slot.key_dim, slot.value_dim, quote(slot.device));
    if (slot.window > 0) out += fmt::format(" window={}", slot.window);
    if (slot.named != SequenceKind::Whole) out += fmt::format(" kind={}", info(slot.named).name);
    out += "\n";
  }
  for (const Blob& blob : program.blobs) out += print_blob(blob);
  for (const Step& step : program.steps) out += print_step(program, step);
  return out + print_launches(program);
}

}  // namespace ktx::program
