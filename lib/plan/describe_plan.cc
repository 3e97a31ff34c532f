#include "lib/plan/describe_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_attrs.h"
#include "lib/plan/describe_hosts.h"
#include "lib/plan/digests.h"
#include "lib/plan/expert_memory.h"
#include "lib/plan/memory.h"
#include "lib/plan/quantization_name.h"
#include "lib/plan/state_layout.h"
#include "lib/plan/stream_slots.h"
#include "lib/program/joint_experts.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/host_device.h"

namespace ktx::plan {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string section_name(uint32_t id) {
#define KTX_SECTION(enum_name, number, text, element, sentence) \
  if (id == number) return text;
#include "lib/plan/sections.def"
#undef KTX_SECTION
  return fmt::format("number {}", id);
}

std::string_view kind_name(uint32_t kind) {
  return kind == static_cast<uint32_t>(SegmentKind::Carried) ? "carried" : "weights";
}

// Weights of one device, format and layout.
struct FormatRow {
  std::string device;
  std::string_view dtype, layout;
  uint64_t count = 0;
  uint64_t bytes = 0;
};

std::vector<FormatRow> format_rows(const PlanView& plan) {
  std::map<std::tuple<std::string, std::string_view, std::string_view>, FormatRow> rows;
  for (const SegmentRecord& segment : plan.segments) {
    for (const BlobRecord& blob : plan.blobs.subspan(segment.first_blob, segment.blob_count)) {
      const std::string device = printable(plan.string(segment.device));
      const std::string_view dtype = name(static_cast<DType>(blob.dtype));
      const std::string_view layout = name(static_cast<Layout>(blob.layout));
      FormatRow& row = rows[{device, dtype, layout}];
      row.device = device, row.dtype = dtype, row.layout = layout;
      row.count += 1;
      row.bytes += blob.size;
    }
  }
  std::vector<FormatRow> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(),
                   [](const FormatRow& a, const FormatRow& b) { return a.bytes > b.bytes; });
  return out;
}

// The steps of one op: how many, and the kernel families they name by precision.
struct OpRow {
  std::string_view op;
  uint64_t count = 0;
  std::set<std::string> kernels[program::kPrecisions];
};

std::vector<OpRow> op_rows(const PlanView& plan) {
  std::vector<OpRow> rows(all_step_ops().size());
  for (const program::Step& step : plan.program->steps) {
    OpRow& row = rows[static_cast<size_t>(step.op)];
    row.op = info(step.op).name;
    row.count += 1;
    for (int precision = 0; precision < program::kPrecisions; ++precision) {
      const std::string& kernel = step.kernels[precision];
      if (!kernel.empty()) row.kernels[precision].insert(printable(kernel));
    }
  }
  std::erase_if(rows, [](const OpRow& row) { return row.count == 0; });
  return rows;
}

RunShape default_shape(const PlanView& plan) {
  RunShape shape;
  shape.ctx = plan.facts.default_ctx;
  shape.max_batch = plan.facts.max_batch;
  shape.step_tokens = plan.facts.chunk_tokens;
  shape.step_outputs = plan.facts.max_batch;
  shape.kv_type = kv_type_from_name(plan.facts.kv_type).value_or(KvType::F16);
  shape.state_bytes = state_layout(plan).bytes();
  return shape;
}

std::string joined(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string quant_mix(const std::vector<FormatRow>& rows) {
  std::vector<std::string_view> names;
  for (const FormatRow& row : rows) {
    if (row.device != "none" && std::find(names.begin(), names.end(), row.dtype) == names.end()) {
      names.push_back(row.dtype);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// What a machine has to have.
std::string requirements(const PlanTarget& target) {
  std::vector<std::string> all;
  for (const std::string& isa : target.required_isa) all.push_back(printable(isa));
  for (const PlanTarget::Device& device : target.devices) {
    if (!target::name_on_host(device.name).starts_with("cuda:")) continue;
    all.push_back(fmt::format("{} of compute capability {} or newer", printable(device.name),
                              target::oldest_gpu()));
  }
  return all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
}

// "q8" for "Q8_0": what --kv-type takes.
std::string_view option_of_kv_type(std::string_view type) {
  return type == "F32" ? "f32" : type == "F16" ? "f16" : "q8";
}

// "3 of a token's 8 experts are added a layer later, in 47 layers (lossy)".
std::string deferral_text(const PlanView& plan) {
  int32_t layers = 0, least = 0, most = 0, top_k = 0;
  for (const program::Step& step : plan.program->steps) {
    const auto* const group = std::get_if<GroupExpertsAttrs>(&step.attrs);
    if (group == nullptr || group->first_rank == 0) continue;
    least = layers == 0 ? group->ranks : std::min(least, group->ranks);
    most = std::max(most, group->ranks);
    top_k = group->top_k;
    ++layers;
  }
  if (layers == 0) return "";
  const std::string some =
      least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
  return fmt::format("{} of a token's {} experts are added a layer later, in {} layer{} (lossy)",
                     some, top_k, layers, layers == 1 ? "" : "s");
}

// "32 on GPUs for experts of each of 48 layers, which follow use; answers depend on where experts
// were, within the rounding of the devices".
std::string slots_text(const PlanView& plan) {
  int32_t layers = 0, least = 0, most = 0;
  for (const program::Step& step : plan.program->steps) {
    const auto* const group = std::get_if<GroupExpertsAttrs>(&step.attrs);
    if (group == nullptr || group->guests == 0 || target::is_cpu(step.device)) continue;
    least = layers == 0 ? group->experts : std::min(least, group->experts);
    most = std::max(most, group->experts);
    ++layers;
  }
  if (layers == 0) return "";
  const std::string some =
      least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
  return fmt::format(
      "{} on GPUs for experts of each of {} layer{}, which follow use; an answer depends on where "
      "experts were, within the rounding of the devices",
      some, layers, layers == 1 ? "" : "s");
}

// "cuda:0, cuda:1 compute 47 layers together, with 95 sums a token; divided: attention, head"; of
// feed-forward parts it does not say.
std::string team_text(const PlanView& plan) {
  static constexpr struct {
    StepOp op;
    bool in_layers;
    std::string_view of;
  } kDivided[] = {
      {StepOp::Attention, true, "attention"},  {StepOp::SparseAttention, true, "attention"},
      {StepOp::DeltaRule, true, "delta nets"}, {StepOp::StateSpace, true, "state spaces"},
      {StepOp::ExpertsDown, true, "experts"},  {StepOp::Matmul, false, "head"}};
  std::vector<std::string> gpus;
  std::set<int32_t> layers;
  int64_t sums = 0;
  for (const program::Step& step : plan.program->steps) {
    if (step.op != StepOp::AllReduce) continue;
    if (std::ranges::find(gpus, step.device) == gpus.end()) gpus.push_back(step.device);
    sums += step.device == gpus.front() ? 1 : 0;
    layers.insert(step.layer);
  }
  if (gpus.empty()) return "";
  std::vector<std::string_view> divided;
  for (const auto& row : kDivided) {
    const bool there = std::ranges::any_of(plan.program->steps, [&](const program::Step& step) {
      return step.op == row.op && (step.layer >= 0) == row.in_layers && step.device == gpus.back();
    });
    const bool known = std::ranges::find(divided, row.of) != divided.end();
    if (there && !known) divided.push_back(row.of);
  }
  return fmt::format("{} compute {} layer{} together, with {} sums a token; divided: {}",
                     printable(fmt::format("{}", fmt::join(gpus, ", "))), layers.size(),
                     layers.size() == 1 ? "" : "s", sums,
                     divided.empty() ? "nothing" : fmt::format("{}", fmt::join(divided, ", ")));
}

std::string model_lines(const PlanView& plan, const std::vector<FormatRow>& formats) {
  const PlanFacts& f = plan.facts;
  std::string out;
  const auto line = [&](std::string_view key, const std::string& value) {
    out += fmt::format("{:<12} {}\n", key, value);
  };
  line("model", fmt::format("{} ({}){}", printable(f.family), printable(f.architecture),
                            f.name.empty() ? "" : ", " + printable(f.name)));
  const double millions = static_cast<double>(f.parameters) / 1e6;
  line("", fmt::format("{} layers, hidden {}, vocabulary {}, context {}, {:.2f} {} weights",
                       f.layers, f.hidden_size, f.vocab_size, f.context_length,
                       millions < 1000 ? millions : millions / 1000, millions < 1000 ? "M" : "B"));
  line("", fmt::format("{}: {}{}", quantization_name(plan), quant_mix(formats),
                       f.lossy ? ", re-quantised (lossy)" : ""));
  for (const std::string& adapter : f.merged) line("merged", printable(adapter));
  line("target", fmt::format("{}, packed for {}, requires {}", printable(plan.target.name),
                             printable(plan.target.isa), requirements(plan.target)));
  line("plan", fmt::format("format {}.{}, {} ({} bytes), hash {}", kMajor, plan.minor,
                           human_bytes(plan.file_bytes), plan.file_bytes, to_hex(plan.identity)));
  line("made by", "ktx " + printable(plan.provenance.ktx_version));
  for (const PlanProvenance::Input& input : plan.provenance.inputs) {
    line("", fmt::format("from {} of {} bytes, hash {}", printable(input.what), input.size_bytes,
                         to_hex(input.hash)));
  }
  for (const std::string& option : plan.provenance.options) line("", "with " + printable(option));
  if (f.gpu_expert_ppm >= 0) {
    line("experts", fmt::format("{:.1f} % of the activations are expected on GPUs",
                                static_cast<double>(f.gpu_expert_ppm) / 1e4));
  }
  if (const std::string team = team_text(plan); !team.empty()) line("together", team);
  if (const std::string slots = slots_text(plan); !slots.empty()) line("slots", slots);
  if (const std::string deferral = deferral_text(plan); !deferral.empty()) {
    line("deferred", deferral);
  }
  if (f.stream_slots != "layer") {
    line("streams", fmt::format("experts of the CPU in long prompts, {} at a time",
                                name(stream_slots(f.stream_slots).value_or(StreamSlots::Layer))));
  }
  if (f.joint_tokens > 0) {
    line("joint", fmt::format("in prompts of up to {} tokens the CPU computes some of the streamed "
                              "experts",
                              program::kMostJoint * f.joint_tokens));
  }
  const std::string budget =
      f.kv_budget_bytes > 0 ? fmt::format(" --kv-budget {}", f.kv_budget_bytes) : "";
  line("defaults", fmt::format("--ctx {} --max-batch {} --chunk {}{} --precision {} --kv-type {}",
                               f.default_ctx, f.max_batch, f.chunk_tokens, budget, f.precision,
                               option_of_kv_type(f.kv_type)));
  return out;
}

// How many of the CPU's experts may be on disk.
std::string expert_line(const PlanView& plan) {
  const ExpertMemory experts = expert_memory(*plan.program);
  if (experts.experts == 0) return "";
  return fmt::format(
      "  experts on the CPU, in the weights: {} in {}; --expert-memory leaves some on disk, from {} "
      "({} experts) on\n",
      experts.experts, human_bytes(experts.bytes), human_bytes(experts.least_bytes()),
      experts.least_slots);
}

std::string memory_lines(const PlanView& plan) {
  RunShape shape = default_shape(plan);
  constexpr KvType kTypes[] = {KvType::F16, KvType::Q8_0, KvType::F32};
  std::vector<Result<MemoryEstimate>> needs;
  uint64_t largest = 0;
  for (const KvType type : kTypes) {
    shape.kv_type = type;
    needs.push_back(estimate_memory(plan, shape));
    if (needs.back()) largest = std::max(largest, needs.back()->total_bytes);
  }
  const ByteUnit unit(largest);
  TextTable table({{"kv type", TextTable::Left},
                   {"kv B/token"},
                   {"kv cache"},
                   {"activations"},
                   {"weights"},
                   {"total"}});
  std::string failures;
  for (size_t i = 0; i < needs.size(); ++i) {
    const std::string type(name(kTypes[i]));
    if (!needs[i]) {
      failures += fmt::format("  {}: {}\n", type, needs[i].error().message);
      continue;
    }
    table.add({type, fmt::format("{}", needs[i]->kv_token.whole), unit.text(needs[i]->kv_bytes),
               unit.text(needs[i]->arena_bytes), unit.text(needs[i]->weight_bytes),
               unit.text(needs[i]->total_bytes)});
  }
  const std::string states =
      shape.state_bytes == 0
          ? ""
          : fmt::format(
                "  states of a fixed size, in the total: {} x {} for each sequence, {} x "
                "{} for snapshots\n",
                kRunningStates, human_bytes(shape.state_bytes),
                kSnapshots * static_cast<uint64_t>(shape.max_batch),
                human_bytes(shape.state_bytes));
  return fmt::format("\nmemory for {} tokens, {} at once, steps of at most {} tokens\n{}{}{}{}",
                     shape.ctx, shape.max_batch, shape.step_tokens, table.plain("  "), states,
                     expert_line(plan), failures);
}

std::string section_lines(const PlanView& plan) {
  TextTable table({{"section", TextTable::Left}, {"offset"}, {"bytes"}, {"hash", TextTable::Left}});
  for (const SectionEntry& section : plan.sections) {
    const bool weights = section.id == static_cast<uint32_t>(SectionId::WeightData);
    const bool inner = is_inner_plan(static_cast<SectionId>(section.id));
    table.add({section_name(section.id), fmt::format("{:#x}", section.offset),
               fmt::format("{}", section.size),
               weights ? "in chunks"
               : inner ? "of its own"
                       : to_hex(section.hash)});
  }
  return "\nsections\n" + table.plain("  ");
}

std::string segment_lines(const PlanView& plan) {
  uint64_t largest = 0;
  for (const SegmentRecord& segment : plan.segments) largest = std::max(largest, segment.size);
  const ByteUnit unit(largest);
  TextTable table(
      {{"device", TextTable::Left}, {"kind", TextTable::Left}, {"offset"}, {"size"}, {"weights"}});
  for (const SegmentRecord& segment : plan.segments) {
    table.add({printable(plan.string(segment.device)), std::string(kind_name(segment.kind)),
               fmt::format("{:#x}", segment.offset), unit.text(segment.size),
               fmt::format("{}", segment.blob_count)});
  }
  return "\nsegments\n" + table.plain("  ");
}

std::string weight_lines(const std::vector<FormatRow>& formats) {
  uint64_t all = 0, largest = 0;
  for (const FormatRow& row : formats) {
    all += row.bytes;
    largest = std::max(largest, row.bytes);
  }
  const ByteUnit unit(largest);
  TextTable table({{"device", TextTable::Left},
                   {"format", TextTable::Left},
                   {"layout", TextTable::Left},
                   {"count"},
                   {"size"},
                   {"% of all"}});
  for (const FormatRow& row : formats) {
    table.add({row.device, std::string(row.dtype), std::string(row.layout),
               fmt::format("{}", row.count), unit.text(row.bytes),
               fmt::format("{:.1f}", 100.0 * static_cast<double>(row.bytes) /
                                         static_cast<double>(std::max<uint64_t>(all, 1)))});
  }
  return "\nweights\n" + table.plain("  ");
}

std::string step_lines(const PlanView& plan) {
  TextTable table({{"op", TextTable::Left},
                   {"count"},
                   {"kernels (exact)", TextTable::Left},
                   {"kernels (fast)", TextTable::Left}});
  for (const OpRow& row : op_rows(plan)) {
    table.add({std::string(row.op), fmt::format("{}", row.count), joined(row.kernels[0]),
               joined(row.kernels[1])});
  }
  table.add({"in all", fmt::format("{}", plan.steps.size())});
  return "\nsteps\n" + table.plain("  ");
}

}  // namespace

std::string plan_tables(const PlanView& plan) {
  const std::vector<FormatRow> formats = format_rows(plan);
  return model_lines(plan, formats) + section_lines(plan) + segment_lines(plan) +
         weight_lines(formats) + memory_lines(plan) + host_lines(plan, default_shape(plan)) +
         step_lines(plan);
}

std::string plan_json(const PlanView& plan) {
  Prefix prefix;
  std::memcpy(&prefix, plan.header.data(), sizeof(prefix));
  OrderedJson out;
  out["format"] = fmt::format("{}.{}", kMajor, plan.minor);
  out["file_bytes"] = plan.file_bytes;
  out["hash"] = to_hex(plan.identity);
  out["header_hash"] = to_hex(prefix.header_hash);
  if (const auto root = root_digest(plan)) out["root"] = "sha256:" + to_hex(*root);
  out["facts"] = OrderedJson::parse(to_json(plan.facts));
  out["target"] = OrderedJson::parse(to_json(plan.target));
  out["provenance"] = OrderedJson::parse(to_json(plan.provenance));
  out["has_chat_template"] = !plan.chat_template.source.empty();
  for (const SectionEntry& section : plan.sections) {
    out["sections"].push_back({{"name", section_name(section.id)},
                               {"id", section.id},
                               {"required", (section.flags & kRequired) != 0},
                               {"offset", section.offset},
                               {"size", section.size},
                               {"hash", to_hex(section.hash)}});
  }
  for (const SegmentRecord& segment : plan.segments) {
    out["segments"].push_back({{"device", plan.string(segment.device)},
                               {"kind", kind_name(segment.kind)},
                               {"offset", segment.offset},
                               {"size", segment.size},
                               {"weights", segment.blob_count}});
  }
  for (const SegmentRecord& segment : plan.segments) {
    for (const BlobRecord& blob : plan.blobs.subspan(segment.first_blob, segment.blob_count)) {
      out["weights"].push_back({{"name", plan.string(blob.name)},
                                {"device", plan.string(segment.device)},
                                {"format", name(static_cast<DType>(blob.dtype))},
                                {"layout", name(static_cast<Layout>(blob.layout))},
                                {"matrices", blob.matrices},
                                {"rows", blob.rows},
                                {"cols", blob.cols},
                                {"offset", blob.offset},
                                {"size", blob.size},
                                {"hash", to_hex(blob.hash)}});
    }
  }
  for (const FormatRow& row : format_rows(plan)) {
    out["formats"].push_back({{"device", row.device},
                              {"format", row.dtype},
                              {"layout", row.layout},
                              {"count", row.count},
                              {"size", row.bytes}});
  }
  const RunShape shape = default_shape(plan);
  const ExpertMemory experts = expert_memory(*plan.program);
  if (const auto need = estimate_memory(plan, shape); need.ok()) {
    out["memory"] = {
        {"ctx", shape.ctx},
        {"max_batch", shape.max_batch},
        {"step_tokens", shape.step_tokens},
        {"kv_type", name(shape.kv_type)},
        {"kv_token_bytes", need->kv_token.whole},
        {"kv_window", kv_widths(plan.program->kv_slots).window},
        {"kv_window_bytes", need->kv_token.times(need->kv_blocks.passing()).value_or(0)},
        {"kv_bytes", need->kv_bytes},
        {"state_bytes", need->state_bytes},
        {"arena_bytes", need->arena_bytes},
        {"weight_bytes", need->weight_bytes},
        {"expert_bytes", experts.bytes},
        {"least_expert_bytes", experts.least_bytes()},
        {"carried_bytes", need->carried_bytes},
        {"total_bytes", need->total_bytes}};
  }
  if (const auto hosts = host_uses(plan, shape); hosts.ok()) {
    for (const HostUse& host : *hosts) {
      out["hosts"].push_back({{"name", host.name},
                              {"memory_bytes", host.capacity},
                              {"layers", host.layers},
                              {"first_layer", host.first_layer},
                              {"weight_bytes", host.cpu.weight_bytes},
                              {"kv_bytes", host.cpu.kv_bytes},
                              {"state_bytes", host.cpu.state_bytes},
                              {"arena_bytes", host.cpu.arena_bytes}});
      for (const DeviceMemory& gpu : host.gpus) {
        out["hosts"].back()["gpus"].push_back({{"name", gpu.name},
                                               {"weight_bytes", gpu.weight_bytes},
                                               {"kv_bytes", gpu.kv_bytes},
                                               {"state_bytes", gpu.state_bytes},
                                               {"arena_bytes", gpu.arena_bytes},
                                               {"stream_bytes", gpu.stream_bytes}});
      }
    }
  }
  for (const OpRow& row : op_rows(plan)) {
    out["steps"].push_back({{"op", row.op},
                            {"count", row.count},
                            {"kernels_exact", row.kernels[0]},
                            {"kernels_fast", row.kernels[1]}});
  }
  // Names come from files: what is no UTF-8 is replaced.
  return out.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace ktx::plan
