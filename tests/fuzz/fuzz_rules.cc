// Reads fuzzer input as a rule file: parses it, matches it against a small model, checks it. It
// must not crash, and no pattern may take long.
//
//   build-fuzz/tests/fuzz/fuzz_rules FOUND tests/fuzz/corpus/rules -dict=tests/fuzz/rules.dict
#include <cstdint>
#include <string>

#include "lib/arch/build_graph.h"
#include "lib/passes/pass.h"
#include "lib/rules/target_yaml.h"

namespace {

constexpr const char* kConfig = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 256,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
  "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
  "intermediate_size": 512, "vocab_size": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000,
  "max_position_embeddings": 4096, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "hidden_act": "silu", "tie_word_embeddings": false
})";

struct Model {
  ktx::input::HfConfig config;
  ktx::ir::ModuleGraph graph;
};

// The same for all inputs: built once.
const Model& model() {
  static const Model built = [] {
    auto config = ktx::input::HfConfig::parse(kConfig, "config.json");
    if (!config) __builtin_trap();
    ktx::DiagSink diags;
    auto graph = ktx::arch::build_graph(*config, diags);
    if (!graph) __builtin_trap();
    return Model{config.take(), graph.take()};
  }();
  return built;
}

}  // namespace

// The first byte says what the rest is: rules or a target, for ktx or KTransformers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  ktx::DiagSink diags;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ktx::passes::CompileState state;
  state.diags = &diags;
  state.modules = model().graph;
  state.config = &model().config;
  state.check.only = true;
  state.check.target_given = (data[0] & 1) != 0;
  if (data[0] & 2) state.check.dialect = ktx::rules::Dialect::KTransformers;
  if (data[0] & 4) {
    state.target = ktx::rules::parse_target(text, "target.yaml", diags);
  } else {
    ktx::rules::add_rules_text(state.rules, text, "rules.yaml", diags);
  }
  ktx::passes::PassOptions options;
  options.stop_after = "check-memory";
  options.verify_each = false;
  (void)ktx::passes::run_passes(state, options);
  (void)ktx::render_diagnostics(diags, 0, true, true);
  int applied = 0;
  (void)ktx::apply_fixes(diags, "rules.yaml", text, applied);
  return 0;
}
