#include "lib/ops/op_rules.h"

#include <cmath>
#include <cstdint>

#include "lib/ops/checks/op_checks.h"
#include "lib/support/strings.h"

namespace ktx {

std::string_view op_checks::operand_name(std::string_view operands, size_t i) {
  const auto names = split(operands, ' ');
  return names[i].substr(0, names[i].find('?'));
}

namespace {

using Rule = void (*)(OpCheck&);
constexpr Rule kRules[] = {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) \
  op_checks::check_##rule,
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP
};

void check_present(OpCheck& s) {
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    s.require(s.in(i).present() || optional_operand(s.op.inputs, i), "input {} ({}) is missing", i,
              s.op.inputs);
  }
  for (size_t i = 0; i < s.outputs.size(); ++i) {
    s.require(s.out(i).present(), "output {} ({}) is missing", i, s.op.outputs);
  }
  for (size_t i = 0; i < s.weights.size(); ++i) {
    s.require(s.weight(i).present() || optional_operand(s.op.weights, i),
              "weight {} ({}) is missing", i, s.op.weights);
    s.require(
        s.weight(i).dtype != DType::I32 || op_checks::operand_name(s.op.weights, i) == "table",
        "weight {} has integer elements", i);
  }
}

void check_finite(OpCheck& s) {
  std::visit(
      [&](auto attrs) {
        attrs.fields([&](const char* name, auto& field) {
          s.require(std::isfinite(static_cast<float>(field)), "{} is {}", name, field);
        });
      },
      s.step_attrs);
}

}  // namespace

bool operand_count_fits(std::string_view operands, int64_t count) {
  const int64_t most = operand_count(operands);
  int64_t least = most;
  while (least > 0 && optional_operand(operands, least - 1)) --least;
  return least <= count && count <= most;
}

void check_op(OpCheck& s) {
  check_present(s);
  check_finite(s);
  if (s.ok()) kRules[static_cast<uint32_t>(s.op.op)](s);
}

void note_outputs(OpCheck& s, int64_t step) {
  // A copy counts as written by who wrote the original.
  if (s.op.op == StepOp::Transfer) {
    s.flow.producer[s.out(0).value] = s.flow.producer[s.in(0).value];
    return;
  }
  for (size_t o = 0; o < s.outputs.size(); ++o) {
    s.flow.producer[s.out(o).value] = {step, static_cast<int64_t>(o), s.op.op, s.step_attrs};
  }
}

}  // namespace ktx
