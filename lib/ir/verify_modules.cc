// Checks a module graph: tree, order, attributes and parameters. Runs after every pass that
// changes the graph. A violation is a bug of the pass before it, or an edited text form.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "lib/formats/shape_limits.h"
#include "lib/ir/module_graph.h"
#include "lib/support/strings.h"

namespace ktx::ir {
namespace {

constexpr size_t kMaxParams = 8;

struct Shape {
  int64_t cols, rows, matrices;
};

class Verifier {
 public:
  Verifier(const ModuleGraph& graph, DiagSink& sink) : graph_(graph), sink_(sink) {}

  void run() {
    if (graph_.modules.empty()) return fail("the graph has no modules");
    listed_.resize(graph_.modules.size());
    std::unordered_set<std::string_view> paths;
    for (size_t i = 0; i < graph_.modules.size(); ++i) {
      module_ = &graph_.modules[i];
      if (!paths.insert(module_->path).second) fail("a second module has this path");
      check_tree(static_cast<ModuleId>(i));
      check_info();
      if (module_->params.size() > kMaxParams) {
        fail(fmt::format("has {} parameters", module_->params.size()));
        continue;
      }
      for (const Param& param : module_->params) check_param(param);
      check_expert_sets();
      check_deferred();
    }
    module_ = nullptr;
    check_order();
    check_parts();
  }

 private:
  void fail(const std::string& what) {
    sink_.error({}, "",
                module_ == nullptr
                    ? what
                    : fmt::format("module '{}': {}", printable(module_->path, 200), what));
  }

  void check_tree(ModuleId id) {
    const auto size = static_cast<ModuleId>(graph_.modules.size());
    if (module_->class_name.empty()) fail("has no class");
    if (id == 0) {
      if (!module_->path.empty() || module_->parent != -1)
        fail("the first module must be the root");
    } else if (module_->parent < 0 || module_->parent >= id) {
      fail(
          fmt::format("number {} has parent {}, expected a module before it", id, module_->parent));
    } else {
      const Module& parent = graph_.modules[module_->parent];
      const std::string prefix = parent.path.empty() ? "" : parent.path + ".";
      const std::string_view path = module_->path;
      if (!path.starts_with(prefix) || path.size() == prefix.size() ||
          path.find('.', prefix.size()) != std::string_view::npos) {
        fail(fmt::format("path does not extend that of its parent '{}'",
                         printable(parent.path, 200)));
      }
      if (listed_[id] != 1) fail(fmt::format("its parent lists it {} times", listed_[id]));
    }
    for (ModuleId child : module_->children) {
      if (child <= id || child >= size || graph_.modules[child].parent != id) {
        fail(fmt::format("lists module {} as its child, which says otherwise", child));
      } else {
        ++listed_[child];
      }
    }
    if (module_->layer < -1 || (graph_.facts.layers > 0 && module_->layer >= graph_.facts.layers)) {
      fail(fmt::format("layer {} of {}", module_->layer, graph_.facts.layers));
    }
  }

  // Depth-first: walking children in order visits the ids 0, 1, 2 and so on.
  void check_order() {
    std::vector<ModuleId> stack = {0};
    ModuleId next = 0;
    while (!stack.empty()) {
      const ModuleId id = stack.back();
      stack.pop_back();
      if (id != next++) {
        return fail(
            fmt::format("modules are not in depth-first order: {} comes as {}", id, next - 1));
      }
      const auto& children = graph_.modules[id].children;
      for (auto child = children.rbegin(); child != children.rend(); ++child) {
        if (*child <= id || *child >= static_cast<ModuleId>(graph_.modules.size())) return;
        stack.push_back(*child);
      }
      if (stack.size() > graph_.modules.size()) return;
    }
    if (next != static_cast<ModuleId>(graph_.modules.size())) {
      fail(fmt::format("{} of {} modules hang on the root", next, graph_.modules.size()));
    }
  }

  void positive(const char* what, int64_t value) {
    if (value <= 0) fail(fmt::format("{} is {}", what, value));
  }
  void finite(const char* what, float value) {
    if (!std::isfinite(value) || value <= 0) fail(fmt::format("{} is {}", what, value));
  }
  template <class T>
  const T* expect_info() {
    const T* info = std::get_if<T>(&module_->info);
    if (info == nullptr) {
      fail(fmt::format("attributes do not fit the role {}", name(module_->role)));
    }
    return info;
  }

  void check_info() {
    switch (kind_of(module_->role)) {
      case Kind::Linear:
        if (const auto* x = expect_info<LinearInfo>())
          positive("in", x->in), positive("out", x->out), finite("factor", x->factor);
        return;
      case Kind::Embedding:
        if (const auto* x = expect_info<EmbeddingInfo>()) {
          positive("vocab", x->vocab), positive("hidden", x->hidden), finite("scale", x->scale);
        }
        return;
      case Kind::Norm:
        if (const auto* x = expect_info<NormInfo>())
          positive("width", x->width), finite("eps", x->eps), finite("factor", x->factor),
              positive("groups", x->groups);
        return;
      case Kind::Rotary:
        if (const auto* x = expect_info<RotaryInfo>()) check(*x);
        return;
      case Kind::Attention:
        if (module_->role == Role::DeltaNet) return check_delta_net();
        if (module_->role == Role::StateSpace) return check_state_space();
        if (module_->role == Role::SelectiveScan) return check_selective_scan();
        if (module_->role == Role::ShortConv) {
          if (const auto* x = expect_info<ShortConvInfo>()) {
            positive("width", x->width);
            if (x->taps < 2) fail(fmt::format("a convolution of {} taps", x->taps));
          }
          return;
        }
        if (module_->role == Role::CompressedAttention) return check_compressed_attention();
        return module_->role == Role::Mla ? check_mla() : check_attention();
      case Kind::Mlp:
        if (const auto* x = expect_info<MlpInfo>()) {
          positive("hidden", x->hidden), positive("width", x->width), check(x->glu);
          if (x->unit < -1 || x->unit >= kUnitFunctions) fail(fmt::format("unit is {}", x->unit));
          if (!(x->sparsity >= 0 && x->sparsity < 1)) {
            fail(fmt::format("sparsity is {}", x->sparsity));
          }
          for (const float factor : {x->limit, x->rise, x->fall, x->slope}) {
            if (!std::isfinite(factor)) fail(fmt::format("a factor of the unit is {}", factor));
          }
        }
        return;
      case Kind::Router:
        if (const auto* x = expect_info<RouterInfo>()) {
          check(x->attrs);
          if (x->scales_input && x->attrs.top_k != 1)
            fail("the inputs of several experts are scaled");
        }
        return;
      case Kind::Experts:
        if (const auto* x = expect_info<ExpertsInfo>()) {
          positive("experts", x->experts), positive("top_k", x->top_k);
          positive("hidden", x->hidden), positive("width", x->width), check(x->glu);
          if (x->top_k > x->experts) fail(fmt::format("top_k {} of {}", x->top_k, x->experts));
        }
        return;
      case Kind::Container:
        if (const auto* x = std::get_if<LayerInfo>(&module_->info);
            x != nullptr && module_->role == Role::Layer) {
          if (!std::isfinite(x->output_scale)) fail("output_scale is not finite");
          return;
        }
        if (is_streams(module_->role)) return check_streams();
        if (is_sources(module_->role)) return check_sources();
        if (module_->role == Role::AltUp) return check_altup();
        if (module_->role == Role::NgramPart) return check_ngram_part();
        if (module_->role == Role::Ngrams) return check_ngrams();
        if (module_->role == Role::ImageProjector || module_->role == Role::ImagePart) {
          return check_pool();
        }
        if (module_->role == Role::Compressor ||
            std::holds_alternative<CompressorInfo>(module_->info)) {
          return check_compressor();
        }
        expect_info<std::monostate>();
        return;
      case Kind::Activation:
      case Kind::Moe:
      case Kind::Expert:
        expect_info<std::monostate>();
        return;
    }
  }

  void check(const RotaryInfo& x) {
    positive("rotary_dim", x.rotary_dim);
    finite("mscale", x.mscale);
    if (x.context < 0) fail(fmt::format("context is {}", x.context));
    if (x.rotary_dim % 2 != 0 || x.inv_freq.size() * 2 != static_cast<size_t>(x.rotary_dim)) {
      fail(fmt::format("{} frequencies for {} rotary dimensions", x.inv_freq.size(), x.rotary_dim));
    }
    if (x.lines < 0 || x.columns < 0 || x.lines > x.rotary_dim / 2 - x.columns) {
      fail(
          fmt::format("{} lines and {} columns of {} pairs", x.lines, x.columns, x.rotary_dim / 2));
    }
    for (float frequency : x.inv_freq) {
      if (!std::isfinite(frequency)) return fail("a frequency is not finite");
    }
  }
  void check_attention() {
    const auto* x = expect_info<AttentionInfo>();
    if (x == nullptr) return;
    positive("heads", x->heads), positive("kv_heads", x->kv_heads);
    positive("head_dim", x->head_dim), finite("scale", x->scale);
    if (x->kv_heads > 0 && x->heads % x->kv_heads != 0) {
      fail(fmt::format("{} heads share {} kv heads", x->heads, x->kv_heads));
    }
    if (x->keys_of_layer < -1 || (x->keys_of_layer >= 0 && x->keys_of_layer >= module_->layer)) {
      fail(fmt::format("layer {} reads the keys of layer {}", module_->layer, x->keys_of_layer));
    }
    if (x->whole_text && (x->chunked != 0 || x->keys_of_layer >= 0)) {
      fail("attention over the whole text has chunks or another layer's keys");
    }
    if (x->window < 0) fail(fmt::format("window is {}", x->window));
    if (x->gate < 0 || x->gate >= kHeadGates) fail(fmt::format("gate is {}", x->gate));
    if (x->value_dim < 0 || (x->value_dim > 0 && x->top_k != 0)) {
      fail(fmt::format("value_dim is {}", x->value_dim));
    }
    if (x->chunked != 0 && (x->chunked != 1 || x->window == 0)) fail("chunks of no size");
    if (!std::isfinite(x->softcap) || x->softcap < 0) {
      fail(fmt::format("softcap is {}", x->softcap));
    }
    if (!std::isfinite(x->alibi) || x->alibi < 0) fail(fmt::format("alibi is {}", x->alibi));
    if (!std::isfinite(x->qkv_limit) || x->qkv_limit < 0) {
      fail(fmt::format("qkv_limit is {}", x->qkv_limit));
    }
    check(x->grown);
    if (x->top_k != 0) check_blocks(*x);
  }
  void check_blocks(const AttentionInfo& x) {
    positive("top_k", x.top_k), positive("index_dim", x.index_dim);
    positive("index_block", x.index_block);
    if (x.index_heads < 0) fail(fmt::format("index_heads is {}", x.index_heads));
    if (x.index_heads > 0) {
      check_entries(x.index_block, x.index_dim);
    } else {
      positive("index_local", x.index_local);
    }
    if (x.index_block > kMaxIndexBlock || x.index_local > x.top_k) {
      fail(fmt::format("{} of {} chosen blocks of {} positions are the last ones", x.index_local,
                       x.top_k, x.index_block));
    }
    if (x.whole_text || x.window != 0 || x.softcap != 0 || x.alibi != 0 || x.keys_of_layer >= 0 ||
        module_->param("sinks") != nullptr) {
      fail(
          "block attention over the whole text, with a window, a softcap, sinks or another "
          "layer's keys");
    }
  }
  void check_compressed_attention() {
    const auto* x = expect_info<CompressedAttentionInfo>();
    if (x == nullptr) return;
    positive("heads", x->heads), positive("head_dim", x->head_dim), finite("scale", x->scale);
    positive("q_lora_rank", x->q_lora_rank), positive("rope_dim", x->rope_dim);
    positive("window", x->window), positive("groups", x->groups);
    positive("group_rank", x->group_rank);
    if (x->rope_dim > x->head_dim) {
      fail(fmt::format("{} rotated elements of heads of {}", x->rope_dim, x->head_dim));
    }
    if (x->groups > 0 && x->heads % x->groups != 0) {
      fail(fmt::format("{} heads in {} groups", x->heads, x->groups));
    }
    if (x->every != 0) check_entries(x->every, x->head_dim);
    if (x->top_k == 0) return;
    positive("top_k", x->top_k), positive("index_heads", x->index_heads);
    if (x->every == 0 || x->index_dim < x->rope_dim) {
      fail(fmt::format("{} rotated elements of entries of {}, of {} positions each", x->rope_dim,
                       x->index_dim, x->every));
    }
  }
  void check_entries(int32_t every, int32_t dim) {
    if (!entries_fit_blocks(every) || every > kMaxCompressed) {
      fail(fmt::format("entries of {} positions, expected 2 to 64 or a multiple of 64", every));
    }
    if (dim <= 0 || dim % kCompressedChannels != 0) {
      fail(fmt::format("entries of {} elements, expected a multiple of {}", dim,
                       kCompressedChannels));
    }
  }
  void check_compressor() {
    const auto* x = expect_info<CompressorInfo>();
    if (x != nullptr) check_entries(x->every, x->dim);
  }
  static bool is_streams(Role role) {
    return role == Role::AttentionStreams || role == Role::MlpStreams || role == Role::HeadStreams;
  }
  void check_streams() {
    const auto* x = expect_info<StreamsInfo>();
    if (x == nullptr) return;
    positive("hidden", x->hidden);
    if (x->streams < 1 || x->streams > kMaxStreams) fail(fmt::format("{} streams", x->streams));
    if (x->rank != 0) {
      if (x->rank < 0 || x->iterations != 0 || x->mean) fail(fmt::format("rank is {}", x->rank));
      return;
    }
    finite("eps", x->eps);
    if ((x->iterations == 0) != (module_->role == Role::HeadStreams) || x->iterations < 0) {
      fail(fmt::format("iterations is {}", x->iterations));
    }
    if (x->mean && x->iterations != 0) fail("a mean whose weights are made");
  }
  static bool is_sources(Role role) {
    return role == Role::AttentionSources || role == Role::MlpSources || role == Role::HeadSources;
  }
  void check_sources() {
    const auto* x = expect_info<SourcesInfo>();
    if (x == nullptr) return;
    positive("hidden", x->hidden), positive("block", x->block), finite("eps", x->eps);
    const int64_t most = int64_t{kMaxStreams - 1} * x->block;
    if (graph_.facts.layers > most) {
      fail(fmt::format("blocks of {} layers for {} layers, expected at most {} blocks", x->block,
                       graph_.facts.layers, kMaxStreams - 1));
    }
  }
  void check_pool() {
    const auto* x = expect_info<PoolInfo>();
    if (x == nullptr) return;
    if (x->side < 1 || x->side > kMaxImageSide) fail(fmt::format("squares of {}", x->side));
    if (x->unfold < 0 || x->unfold > 2) fail(fmt::format("unfold is {}", x->unfold));
  }
  void check_ngram_part() {
    const auto* x = expect_info<NgramPartInfo>();
    if (x == nullptr) return;
    positive("hidden", x->hidden);
    if (x->streams < 1 || x->streams > kMaxStreams) fail(fmt::format("{} streams", x->streams));
    if (x->taps < 2) fail(fmt::format("a convolution of {} taps", x->taps));
    if (x->dilation < 1) fail(fmt::format("dilation is {}", x->dilation));
  }
  void check_ngrams() {
    const auto* x = expect_info<NgramsInfo>();
    if (x == nullptr) return;
    if (x->size < 2 || x->size > kMaxNgramSize || x->heads < 1 || x->rows() > kMaxNgramRows) {
      return fail(fmt::format("{} rows for each of {} tokens", x->heads, x->size));
    }
    const auto rows = static_cast<size_t>(x->rows());
    if (x->multipliers.size() != static_cast<size_t>(x->size) || x->sizes.size() != rows ||
        x->offsets.size() != rows) {
      return fail(fmt::format("{} multipliers, {} sizes and {} offsets for {} tokens and {} rows",
                              x->multipliers.size(), x->sizes.size(), x->offsets.size(), x->size,
                              rows));
    }
    if (x->end < 0) fail(fmt::format("end is {}", x->end));
    if (std::ranges::count(x->sizes, uint64_t{0}) > 0) fail("a hash of no rows");
  }
  void check_altup() {
    const auto* x = expect_info<AltUpInfo>();
    if (x == nullptr) return;
    positive("hidden", x->hidden);
    if (x->streams < 2 || x->streams > kMaxStreams) fail(fmt::format("{} streams", x->streams));
    if (x->active < 0 || x->active >= x->streams) fail(fmt::format("active is {}", x->active));
  }
  void check_delta_net() {
    const auto* x = expect_info<DeltaNetInfo>();
    if (x == nullptr) return;
    positive("key_heads", x->key_heads), positive("value_heads", x->value_heads);
    positive("head_dim", x->head_dim);
    if (x->taps < 2) fail(fmt::format("a convolution of {} taps", x->taps));
    if (!std::isfinite(x->lower_bound) || x->lower_bound > 0 ||
        (x->lower_bound < 0 && !x->by_channel)) {
      fail(fmt::format("lower_bound is {}", x->lower_bound));
    }
    if (x->key_heads > 0 && x->value_heads % x->key_heads != 0) {
      fail(fmt::format("{} value heads share {} key heads", x->value_heads, x->key_heads));
    }
  }
  void check_state_space() {
    const auto* x = expect_info<StateSpaceInfo>();
    if (x == nullptr) return;
    positive("heads", x->heads), positive("head_dim", x->head_dim);
    positive("groups", x->groups), positive("state_dim", x->state_dim);
    if (x->taps < 2) fail(fmt::format("a convolution of {} taps", x->taps));
    if (x->groups > 0 && x->heads % x->groups != 0) {
      fail(fmt::format("{} heads share {} groups", x->heads, x->groups));
    }
    if (!(x->step_min >= 0 && x->step_max >= 0) || !std::isfinite(x->step_min + x->step_max)) {
      fail(fmt::format("steps are limited to {} and {}", x->step_min, x->step_max));
    }
  }
  void check_selective_scan() {
    const auto* x = expect_info<SelectiveScanInfo>();
    if (x == nullptr) return;
    positive("channels", x->channels), positive("state_dim", x->state_dim);
    positive("step_rank", x->step_rank);
    if (x->taps < 2) fail(fmt::format("a convolution of {} taps", x->taps));
  }
  void check(const PositionScaleAttrs& x) {
    positive("context", x.context);
    if (!std::isfinite(x.growth) || x.growth < 0) fail(fmt::format("growth is {}", x.growth));
  }
  void check(const GluAttrs& x) {
    if (x.activation < 0 || x.activation >= kActivations) {
      fail(fmt::format("activation is {}", x.activation));
    }
    if (!std::isfinite(x.limit) || x.limit < 0) fail(fmt::format("limit is {}", x.limit));
  }
  void check_mla() {
    const auto* x = expect_info<MlaInfo>();
    if (x == nullptr) return;
    positive("heads", x->heads), positive("kv_lora_rank", x->kv_lora_rank);
    positive("nope_dim", x->nope_dim), positive("value_dim", x->value_dim);
    finite("scale", x->scale);
    if (x->rope_dim < (x->rotated ? 1 : 0)) fail(fmt::format("rope_dim is {}", x->rope_dim));
    if (x->q_lora_rank < 0) fail(fmt::format("q_lora_rank is {}", x->q_lora_rank));
    check(x->grown);
    if (x->top_k != 0) check_indexer(*x);
  }
  void check_indexer(const MlaInfo& x) {
    positive("top_k", x.top_k), positive("index_heads", x.index_heads);
    positive("index_dim", x.index_dim), positive("q_lora_rank", x.q_lora_rank);
    if (x.index_pool != 0) check_entries(x.index_pool, x.index_dim);
    if (x.index_dim < x.rope_dim) {
      fail(fmt::format("{} rotated elements of index_dim {}", x.rope_dim, x.index_dim));
    }
    if (x.positions_of_layer < -1 ||
        (x.positions_of_layer >= 0 && x.positions_of_layer >= module_->layer)) {
      fail(fmt::format("layer {} takes the positions of layer {}", module_->layer,
                       x.positions_of_layer));
    }
  }
  void check(const RouterAttrs& x) {
    positive("experts", x.experts), positive("top_k", x.top_k), finite("scale", x.scale);
    positive("groups", x.groups), positive("groups_used", x.groups_used);
    if (x.top_k > x.experts || x.groups <= 0 || x.experts % x.groups != 0 ||
        x.groups_used > x.groups) {
      fail(fmt::format("routes to {} of {} experts in {} of {} groups", x.top_k, x.experts,
                       x.groups_used, x.groups));
    }
  }

  // What the attributes of this module (and, for MLA's kv_b, of its parent) say
  // about a parameter; 0: anything.
  std::optional<Shape> expected(const Param& param) const {
    const std::string_view name = param.name;
    if (const auto* x = std::get_if<LinearInfo>(&module_->info)) {
      if (name == "weight") return Shape{x->in, x->out, 1};
      if (name == "transposed") return Shape{x->out, x->in, 1};
      if (name == "second_frame" && module_->role == Role::PatchEmbedding) {
        return Shape{x->in, x->out, 1};
      }
      if (name == "bias") return Shape{x->out, 1, 1};
      if (name == "streams" && x->in > 0) return Shape{x->in, x->in, x->out / x->in};
      const bool half = name == "gate" || name == "up";
      if (half && module_->role == Role::GateUpProj) return Shape{x->in, x->out / 2, 1};
      if (module_->role != Role::KvBProj || module_->parent < 0) return std::nullopt;
      const auto* mla = std::get_if<MlaInfo>(&graph_.modules[module_->parent].info);
      if (mla == nullptr) return std::nullopt;
      if (name == "k_b") return Shape{mla->nope_dim, mla->kv_lora_rank, mla->heads};
      if (name == "v_b") return Shape{mla->kv_lora_rank, mla->value_dim, mla->heads};
    } else if (const auto* x = std::get_if<EmbeddingInfo>(&module_->info)) {
      if (name == "weight") return Shape{x->hidden, x->vocab, 1};
    } else if (const auto* x = std::get_if<NormInfo>(&module_->info)) {
      if (name == "weight") return Shape{x->width, x->groups, 1};
      if (name == "bias" && x->layer_norm) return Shape{x->width, 1, 1};
    } else if (const auto* x = std::get_if<RouterInfo>(&module_->info)) {
      if (name == "weight") return Shape{0, x->attrs.experts, 1};
      if (name == "bias" || name == "correction_bias" || name == "factors") {
        return Shape{x->attrs.experts, 1, 1};
      }
      if (name == "table") return Shape{x->attrs.top_k, graph_.facts.vocab, 1};
    } else if (const auto* x = std::get_if<CompressedAttentionInfo>(&module_->info)) {
      if (name == "sinks") return Shape{x->heads, 1, 1};
    } else if (const auto* x = std::get_if<CompressorInfo>(&module_->info)) {
      if (name == "position_bias") return Shape{x->channels(), x->every, 1};
      if (name == "pool_gate") return Shape{graph_.facts.hidden, x->channels(), 1};
    } else if (const auto* x = std::get_if<StreamsInfo>(&module_->info)) {
      const StreamWeightsAttrs attrs = x->attrs();
      if (name == "fn") return Shape{x->streams * x->hidden, attrs.width(), 1};
      if (name == "scale") return Shape{attrs.scales(), 1, 1};
      if (name == "base") return Shape{attrs.width(), 1, 1};
    } else if (const auto* x = std::get_if<NgramPartInfo>(&module_->info)) {
      if (name == "conv") return Shape{x->taps, x->streams * x->hidden, 1};
    } else if (const auto* x = std::get_if<SourcesInfo>(&module_->info)) {
      if (name == "score") return Shape{x->hidden, 1, 1};
    } else if (const auto* x = std::get_if<AltUpInfo>(&module_->info)) {
      if (name == "output_scale") return Shape{x->hidden, 1, 1};
    } else if (const auto* x = std::get_if<AttentionInfo>(&module_->info)) {
      if (name == "sinks") return Shape{x->heads, 1, 1};
    } else if (const auto* x = std::get_if<DeltaNetInfo>(&module_->info)) {
      if (name == "conv") return Shape{x->taps, x->channels(), 1};
      if (name == "decay") return Shape{x->value_heads, 1, 1};
      if (name == "dt_bias") return Shape{x->by_channel ? x->width() : x->value_heads, 1, 1};
      const bool part = name == "conv_q" || name == "conv_k" || name == "conv_v";
      if (part && x->by_channel) return Shape{x->taps, x->width(), 1};
    } else if (const auto* x = std::get_if<SelectiveScanInfo>(&module_->info)) {
      if (name == "conv") return Shape{x->taps, x->channels, 1};
      if (name == "decay") return Shape{x->state_dim, x->channels, 1};
      if (name == "conv_bias" || name == "skip") return Shape{x->channels, 1, 1};
    } else if (const auto* x = std::get_if<ShortConvInfo>(&module_->info)) {
      if (name == "conv") return Shape{x->taps, x->width, 1};
    } else if (const auto* x = std::get_if<StateSpaceInfo>(&module_->info)) {
      if (name == "conv") return Shape{x->taps, x->channels(), 1};
      if (name == "conv_bias") return Shape{x->channels(), 1, 1};
      if (name == "decay" || name == "dt_bias" || name == "skip") return Shape{x->heads, 1, 1};
    } else if (const auto* x = std::get_if<ExpertsInfo>(&module_->info)) {
      if (name == "gate" || name == "up") return Shape{x->hidden, x->width, x->experts};
      if (name == "down") return Shape{x->width, x->hidden, x->experts};
      if (name == "gate_bias" || name == "up_bias") return Shape{x->width, x->experts, 1};
      if (name == "down_bias") return Shape{x->hidden, x->experts, 1};
      if (name == "gate_factors" || name == "up_factors") return Shape{x->experts, 1, 1};
    }
    return std::nullopt;
  }

  void check_param(const Param& param) {
    for (const Param& other : module_->params) {
      if (&other != &param && other.name == param.name) {
        return fail(fmt::format("two parameters '{}'", printable(param.name)));
      }
    }
    const std::optional<Shape> shape = expected(param);
    if (!shape) {
      return fail(
          fmt::format("role {} has no parameter '{}'", name(module_->role), printable(param.name)));
    }
    if (param.cols <= 0 || (shape->cols != 0 && param.cols != shape->cols) ||
        param.rows != shape->rows || param.matrices != shape->matrices) {
      fail(fmt::format("parameter {} is [{}, {}, {}], its attributes say [{}, {}, {}]", param.name,
                       param.cols, param.rows, param.matrices, shape->cols, shape->rows,
                       shape->matrices));
    }
    if (!row_bytes(param.dtype, param.cols)) {
      fail(fmt::format("parameter {}: rows of {} are no whole blocks of {}", param.name, param.cols,
                       name(param.dtype)));
    }
    check_sources(param);
  }

  void check_sources(const Param& param) {
    if (param.sources.empty()) return fail(fmt::format("parameter {} has no tensor", param.name));
    __int128 rows = 0;
    bool whole = false;
    for (const TensorSlice& slice : param.sources) {
      if (slice.tensor.empty() || slice.first_row < 0 || slice.row_count < -1 ||
          slice.row_count == 0) {
        return fail(
            fmt::format("parameter {}: bad slice of '{}'", param.name, printable(slice.tensor)));
      }
      whole |= slice.row_count == -1;
      rows += slice.row_count;
    }
    if (!whole && rows != static_cast<__int128>(param.rows) * param.matrices) {
      fail(fmt::format("parameter {}: its sources do not have {} x {} rows", param.name,
                       param.matrices, param.rows));
    }
  }

  // Each expert of a stack is in one set at most, and some are in none.
  void check_expert_sets() {
    const std::vector<ExpertSet>& sets = module_->decision.expert_sets;
    if (sets.empty()) return;
    const auto* info = std::get_if<ExpertsInfo>(&module_->info);
    if (info == nullptr) return fail("a set of experts, but no experts");
    std::unordered_set<int32_t> seen;
    int64_t count = 0;
    for (const ExpertSet& set : sets) {
      if (set.device.empty()) fail("a set of experts on no device");
      const bool listed = set.experts.empty() || std::ssize(set.experts) == set.count;
      const bool open = set.guests && set.count == 0 && set.experts.empty();
      if ((set.count <= 0 && !open) || !listed) fail(fmt::format("a set of {} experts", set.count));
      if (!(set.use >= 0 && set.use <= 1)) fail(fmt::format("a set's use is {}", set.use));
      for (int32_t expert : set.experts) {
        if (expert < 0 || expert >= info->experts || !seen.insert(expert).second) {
          fail(fmt::format("a set has expert {} of {}, or has it twice", expert, info->experts));
        }
      }
      count += set.count;
    }
    if (count >= info->experts) {
      fail(fmt::format("{} of {} experts are in sets", count, info->experts));
    }
  }

  // At least one of a token's experts is not deferred.
  void check_deferred() {
    const int32_t deferred = module_->decision.deferred;
    if (deferred == 0) return;
    const auto* info = std::get_if<ExpertsInfo>(&module_->info);
    if (info == nullptr) return fail("deferred experts, but no experts");
    if (deferred < 0 || deferred >= info->top_k) {
      fail(fmt::format("{} of {} experts of a token are deferred", deferred, info->top_k));
    }
  }

  void check_parts() {
    std::unordered_set<std::string_view> suffixes;
    for (const ExpertPart& part : graph_.expert_parts) {
      if (!suffixes.insert(part.suffix).second || part.suffix.find('.') != std::string::npos ||
          part.class_name.empty() ||
          !(part.param.empty() || part.param == "gate" || part.param == "up" ||
            part.param == "down")) {
        fail(fmt::format("bad expert part '{}'", printable(part.suffix)));
      }
    }
  }

  const ModuleGraph& graph_;
  DiagSink& sink_;
  const Module* module_ = nullptr;
  std::vector<int> listed_;  // how often a module's parent lists it; parents come first
};

}  // namespace

void verify(const ModuleGraph& graph, DiagSink& sink) {
  Verifier(graph, sink).run();
}

}  // namespace ktx::ir
