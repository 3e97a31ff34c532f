#include "lib/plan/check_step_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/ops/step_attrs.h"
#include "lib/plan/plan_program.h"
#include "lib/program/step_verifier.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::plan {
namespace {

// The ranges of a record: what its conversion relies on (plan_program.h), and the rules of the
// format that a step does not know.
class FieldCheck {
 public:
  FieldCheck(const PlanView& plan, const StepRecord& step) : plan_(plan), step_(step) {}

  // The first mistake; empty: none.
  std::string run() {
    const StepOpInfo& op = info(static_cast<StepOp>(step_.op));
    require(is_string(step_.module) && is_string(step_.device),
            "module {} or device {} is no string", step_.module, step_.device);
    require(-1 <= step_.layer && step_.layer < plan_.facts.layers, "layer is {}, expected -1 to {}",
            step_.layer, plan_.facts.layers - 1);
    for (const uint32_t kernel : step_.kernel) {
      require(kernel == kNone || is_string(kernel), "kernel {} is no string", kernel);
    }
    in_table("inputs", step_.first_input, step_.input_count, plan_.operands.size());
    in_table("outputs", step_.first_output, step_.output_count, plan_.operands.size());
    in_table("weights", step_.first_weight, step_.weight_count, plan_.weight_uses.size());
    in_table("attributes", step_.attrs_offset, step_.attrs_size, plan_.attrs.size());
    require(attrs_size_fits(op.op, step_.attrs_size) && step_.attrs_offset % 4 == 0,
            "{} bytes of attributes at {}, expected {}", step_.attrs_size, step_.attrs_offset,
            op.attrs_size);
    if (error_.empty()) check_weights();
    return error_;
  }

 private:
  template <class... Args>
  void require(bool good, fmt::format_string<Args...> format, Args&&... args) {
    if (!good && error_.empty()) error_ = fmt::format(format, std::forward<Args>(args)...);
  }
  bool is_string(uint32_t i) const { return i < plan_.string_entries.size(); }
  void in_table(const char* what, uint64_t first, uint64_t count, uint64_t size) {
    require(first <= size && count <= size - first, "{} {} to {} of {}", what, first, first + count,
            size);
  }
  void check_weights() {
    const std::span<const uint32_t> weights = plan_.weights(step_);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == kNone) continue;
      require(weights[i] < plan_.blobs.size(), "weight {} of {}", weights[i], plan_.blobs.size());
      for (const SegmentRecord& segment : plan_.segments) {
        if (weights[i] - segment.first_blob >= segment.blob_count) continue;
        require(segment.kind == static_cast<uint32_t>(SegmentKind::Weights),
                "weight {} is only carried for export", i);
        break;
      }
    }
  }

  const PlanView& plan_;
  const StepRecord& step_;
  std::string error_;
};

Error wrong_step(const PlanView& plan, uint32_t number, std::string_view error) {
  const StepRecord& step = plan.steps[number];
  const std::string_view module =
      step.module < plan.string_entries.size() ? plan.string(step.module) : "?";
  return Error{fmt::format("step {} ({}, {}): {}", number, info(static_cast<StepOp>(step.op)).name,
                           printable(module), error)};
}

// The steps of a tower are of such images as its facts say.
Status verify_tower(const PlanFacts& facts, const program::Program& program) {
  const ImageFacts& image = facts.image;
  const bool fits = facts.encoder && facts.scores == 0 &&
                    facts.given_width == image.patch_floats() &&
                    facts.context_length == image.patches();
  if (!fits || std::ranges::count(program.steps, StepOp::PoolRows, &program::Step::op) == 0) {
    return Error{fmt::format("the plan is no tower for images of {} patches of {} floats",
                             image.patches(), image.patch_floats())};
  }
  for (const program::Step& step : program.steps) {
    const auto* pool = std::get_if<PoolRowsAttrs>(&step.attrs);
    if (!pool || pool->side == image.pool) continue;
    return Error{
        fmt::format("squares of {} patches a side, of images with {}", pool->side, image.pool)};
  }
  return {};
}

// What comes with the tokens of a pass beside their ids is not sent to other hosts, and steps of
// GPUs do not look whether it has come; nor where squares of patches end, which are a tower's
// alone.
Status verify_images_on_gpus(const PlanFacts& facts, const program::Program& program) {
  constexpr StepOp kOps[] = {StepOp::GivenHidden, StepOp::GivenRows, StepOp::RopeGrid,
                             StepOp::EmbedGrid, StepOp::PoolRows};
  const bool hosts = std::ranges::any_of(
      program.steps, [](const program::Step& step) { return !target::is_first_host(step.device); });
  for (const program::Step& step : program.steps) {
    if (target::is_cpu(step.device) || std::ranges::count(kOps, step.op) == 0) continue;
    if (hosts) {
      return Error{fmt::format("{} on {}, in a plan for several hosts", info(step.op).name,
                               printable(step.device))};
    }
    if (step.op != StepOp::PoolRows || facts.is_tower()) continue;
    return Error{fmt::format("squares of patches on {}, in a plan that is no tower",
                             printable(step.device))};
  }
  return {};
}

// Rows of images are put in where the facts say so.
Status verify_takes_images(const PlanFacts& facts, const program::Program& program) {
  bool puts = false, adds = false;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].op != StepOp::GivenRows) continue;
    const program::Value& rows = program.values[program.output(i)];
    const int64_t part = std::get<GivenRowsAttrs>(program.steps[i].attrs).part;
    (part == 0 ? puts : adds) = true;
    if (part > facts.image.more_parts) {
      return Error{fmt::format("part {} of rows of images that have {} parts", part,
                               1 + facts.image.more_parts)};
    }
    const std::string& device = program.steps[i].device;
    if (rows.width == facts.hidden_size && target::is_first_host(device)) continue;
    return Error{
        fmt::format("rows of images of {} floats, of this host, for value '{}' with {} on {}",
                    facts.hidden_size, printable(rows.name), rows.width, printable(device))};
  }
  const bool fits =
      facts.image.size > 0 && facts.image.width == facts.hidden_size && !facts.reads_hidden();
  if (puts == facts.takes_images && (puts ? fits : !adds)) return {};
  return Error{"the facts and the steps differ on whether rows of images take a token's place"};
}

// The hidden states that come with tokens are as wide as the facts say.
Status verify_given(const PlanFacts& facts, const program::Program& program) {
  bool reads = false;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].op != StepOp::GivenHidden) continue;
    reads = true;
    const program::Value& given = program.values[program.output(i)];
    if (given.width == facts.given_width) continue;
    return Error{fmt::format("{} floats come with each token, but value '{}' has {}",
                             facts.given_width, printable(given.name), given.width)};
  }
  if (reads != facts.reads_hidden()) {
    return Error{"the facts and the steps differ on whether hidden states come with the tokens"};
  }
  if (facts.is_tower()) return verify_tower(facts, program);
  if (reads && (facts.given_taps.empty() || facts.given_states() <= 0)) {
    return Error{"no hidden states of a model are among those that come with the tokens"};
  }
  return {};
}

// A value of F32 with such rows, each of `width` elements, that is there behind the last step.
bool stays(const program::Program& program, const program::StepVerifier& steps, uint32_t number,
           RowKind rows, int64_t width) {
  const auto id = static_cast<program::ValueId>(number);
  const program::Value& value = program.values[id];
  return value.type == ValueType::F32 && value.rows == rows && value.rows_per_row == 1 &&
         value.width == width && steps.holds(id);
}

// What a drafter reads for each token is there behind the last step.
Status verify_kept(const PlanFacts& facts, const program::Program& program,
                   const program::StepVerifier& steps) {
  for (const uint32_t value : facts.hidden_values) {
    if (value >= program.values.size()) {
      return Error{fmt::format("hidden states are value {} of {}", value, program.values.size())};
    }
    if (!stays(program, steps, value, RowKind::Token, facts.hidden_size)) {
      return Error{
          fmt::format("value '{}' is not the hidden states of {} elements of each token, or "
                      "does not stay until the end",
                      printable(program.values[value].name), facts.hidden_size)};
    }
  }
  if (facts.reads_hidden() && facts.hidden_values.size() > 1) {
    return Error{"a drafter keeps more than one hidden state of its own"};
  }
  return {};
}

// Each logit of a draft head is of a token of its own.
Status verify_draft_tokens(const PlanView& plan) {
  const int64_t vocab = plan.facts.vocab_size;
  if (std::ssize(plan.draft_tokens) != plan.facts.draft_vocab) {
    return Error{fmt::format("section 'draft-tokens' has {} tokens for {} logits",
                             plan.draft_tokens.size(), plan.facts.draft_vocab)};
  }
  if (plan.facts.draft_vocab == 0) return {};
  if (!plan.facts.reads_hidden() || plan.facts.draft_vocab > vocab) {
    return Error{fmt::format("a plan with {} logits for {} tokens is no draft head",
                             plan.facts.draft_vocab, vocab)};
  }
  std::vector<bool> seen(static_cast<size_t>(vocab));
  for (const int32_t token : plan.draft_tokens) {
    if (token < 0 || token >= vocab || seen[static_cast<size_t>(token)]) {
      return Error{
          fmt::format("section 'draft-tokens' has token {} of {}, or has it twice", token, vocab)};
    }
    seen[static_cast<size_t>(token)] = true;
  }
  return {};
}

}  // namespace

Status check_step_fields(const PlanView& plan) {
  if (plan.steps.empty()) return Error{"the plan has no steps"};
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const StepRecord& step = plan.steps[i];
    if (step.op >= all_step_ops().size()) {
      return Error{fmt::format("step {}: op {} is not known here; the plan needs a newer ktx-run",
                               i, step.op)};
    }
    const std::string error = FieldCheck(plan, step).run();
    if (!error.empty()) return wrong_step(plan, i, error);
  }
  return {};
}

Status check_steps(const PlanView& plan, const program::Program& program) {
  program::StepVerifier steps(program, {.vocab_size = plan.facts.vocab_size, .devices = true});
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const std::string error = steps.check(i);
    if (!error.empty()) return wrong_step(plan, i, error);
  }

  const PlanFacts& facts = plan.facts;
  if (facts.logits_value >= program.values.size()) {
    return Error{
        fmt::format("logits are value {} of {}", facts.logits_value, program.values.size())};
  }
  if (program.logits() != static_cast<program::ValueId>(facts.logits_value) ||
      !stays(program, steps, facts.logits_value, RowKind::Output, facts.output_width())) {
    return Error{fmt::format("value '{}' is not the {} {} that the last step leaves",
                             printable(program.values[facts.logits_value].name),
                             facts.gives_logits() ? "logits of" : "outputs in a row:",
                             facts.gives_logits() ? fmt::format("{} tokens", facts.output_width())
                                                  : std::to_string(facts.output_width()))};
  }
  KTX_TRY(verify_given(facts, program));
  KTX_TRY(verify_takes_images(facts, program));
  KTX_TRY(verify_images_on_gpus(facts, program));
  KTX_TRY(verify_kept(facts, program, steps));
  return verify_draft_tokens(plan);
}

Status verify_steps(const PlanView& plan) {
  KTX_TRY(check_step_fields(plan));
  return check_steps(plan, steps_of(plan));
}

}  // namespace ktx::plan
