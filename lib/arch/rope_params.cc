// Rotary positions: the part of a head that is rotated, and the scaling of positions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

class RopePart : ParamPart {
 public:
  explicit RopePart(const ParamPart& part) : ParamPart(part) {}

  void read_rope() {
    RopeParams& rope = p_.rope;
    p_.interleaved_rope = family_.interleaved_rope;
    if (const auto pairs = in_.flag("rope_interleave")) {
      if (family_.interleaved_rope) p_.interleaved_rope = *pairs;
    }
    rope.theta = in_.number("rope_theta", 1, 1e12);
    p_.local_rope.theta = in_.number_or_null("rope_local_base_freq", 1, 1e12).value_or(rope.theta);
    if (family_.attention == AttentionKind::Compressed) {  // of layers with entries
      rope.theta = in_.number("compress_rope_theta", 1, 1e12);
    }
    read_rotary_dim();
    p_.grid_rope = family_.has_role(ir::Role::GridRotary);
    if (p_.grid_rope && p_.rotary_dim % 4 != 0) {
      return in_.fail(fmt::format(
          "heads of {} elements, expected a multiple of 4: half of the pairs is rotated by line",
          p_.rotary_dim));
    }
    read_sections();
    const std::string type = in_.text("rope_scaling.rope_type");
    if (type.empty() || type == "default" || type == "none") return;
    if (type == "linear") {
      rope.type = RopeType::Linear;
    } else if (type == "dynamic") {
      rope.type = RopeType::Dynamic;
    } else if (type == "yarn") {
      rope.type = RopeType::Yarn;
    } else if (type == "llama3" && family_.attention == AttentionKind::Gqa) {
      rope.type = RopeType::Llama3;
    } else if (type == "proportional" && family_.attention == AttentionKind::Gqa) {
      rope.type = RopeType::Proportional;
      rope.rotated = in_.number_or_null("partial_rotary_factor", 0, 1).value_or(1);
      rope.factor = in_.number_or_null("rope_scaling.factor", 1e-3, 1e6).value_or(1);
      return;
    } else if (type == "longrope" && family_.attention != AttentionKind::Compressed) {
      rope.type = RopeType::LongRope;
    } else {
      const std::string known[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
      const char* const more = family_.attention == AttentionKind::Gqa   ? ", llama3, longrope"
                               : family_.attention == AttentionKind::Mla ? ", longrope"
                                                                         : "";
      in_.fail(
          fmt::format("'rope_scaling.rope_type' is '{}', known for {} are default, linear, "
                      "dynamic, yarn{}{}",
                      printable(type), family_.architecture, more, did_you_mean(type, known)));
      return;
    }
    if (p_.windows_left_out) {
      in_.fail(
          fmt::format("'sliding_window' with rope scaling '{}': layers with and without a "
                      "window are rotated differently, which is not known",
                      type));
      return;
    }
    read_scaling();
  }

 private:
  // Those that are not of the head's pairs are none: they count where a tower needs them.
  void read_sections() {
    const auto sections = in_.config().floats("mrope_section");
    if (!sections || sections->size() != 3 || !family_.has_config_key("mrope_section")) return;
    double sum = 0;
    for (const double pairs : *sections) {
      if (!(pairs >= 0) || pairs != std::floor(pairs)) return;
      sum += pairs;
    }
    if (2 * sum != p_.rotary_dim) return;
    p_.rope_lines = static_cast<int32_t>((*sections)[1]);
    p_.rope_columns = static_cast<int32_t>((*sections)[2]);
  }

  void read_rotary_dim() {
    if (family_.attention != AttentionKind::Gqa) {
      p_.rotary_dim = p_.local_rotary_dim = p_.rope_dim;
      return;
    }
    const auto full = std::ranges::find(p_.shapes, 0, &LayerShape::window);
    const auto local = std::ranges::find_if(p_.shapes, [](const auto& s) { return s.window > 0; });
    const int32_t head_dim = (full == p_.shapes.end() ? p_.shapes[0] : *full).head_dim;
    p_.rotary_dim = head_dim;
    p_.local_rotary_dim = local == p_.shapes.end() ? head_dim : local->head_dim;
    if (const auto dim =
            in_.integer_or_null("local_rotary_dim", 2, std::max(p_.local_rotary_dim, 2))) {
      p_.local_rotary_dim = static_cast<int32_t>(*dim / 2 * 2);
    }
    if (in_.text("rope_scaling.rope_type") == "proportional") return;
    const auto part = in_.number_or_null("partial_rotary_factor", 0, 1);
    if (!family_.partial_rotary) {
      if (!part || *part == 1) return;
      const int32_t whole = in_.config().is_of_gguf() ? head_dim : 1;  // a GGUF counts elements
      in_.fail(fmt::format("'partial_rotary_factor' is {}, expected {}: {} rotates whole heads",
                           *part * whole, whole, family_.architecture));
      return;
    }
    const auto dim = in_.integer_or_null("rotary_dim", 2, std::max(head_dim, 2));
    if (dim) {
      p_.rotary_dim = static_cast<int32_t>(*dim);
    } else if (part) {
      // A share that a GGUF's counts gave may be a little too small.
      p_.rotary_dim = static_cast<int32_t>(*part * head_dim + 1e-6);
    }
    const auto local_part = in_.number_or_null("local_rotary_factor", 0, 1);
    if (local_part) {
      p_.local_rotary_dim = static_cast<int32_t>(*local_part * p_.local_rotary_dim + 1e-6) / 2 * 2;
    } else if (p_.local_rotary_dim == head_dim) {
      p_.local_rotary_dim = p_.rotary_dim;
    }
    if (p_.index_block > 0 && p_.index_dim < p_.rotary_dim) {
      in_.fail(fmt::format("'index_head_dim' {} is below the {} rotated elements of a head",
                           p_.index_dim, p_.rotary_dim));
    }
    if (head_dim > 0 && (p_.rotary_dim < 2 || p_.rotary_dim % 2 != 0)) {
      in_.fail(fmt::format("{} of the {} elements of a head are rotated, expected an even number",
                           p_.rotary_dim, head_dim));
    }
  }

  void read_scaling() {
    RopeParams& rope = p_.rope;
    const auto factor = in_.number_or_null("rope_scaling.factor", 1e-3, 1e6);
    rope.low_freq_factor = in_.number_or_null("rope_scaling.low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = in_.number_or_null("rope_scaling.high_freq_factor", 1e-6, 1e6);
    rope.original_context =
        in_.number_or_null("rope_scaling.original_max_position_embeddings", 1, 1e12)
            .value_or(static_cast<double>(p_.context));
    // Without parameters llama3's factors come from the tensor rope_freqs.weight.
    const bool needs_factor = rope.type == RopeType::Llama3 ? rope.low_freq_factor.has_value()
                                                            : rope.type != RopeType::LongRope;
    if (!factor && needs_factor) in_.fail("'rope_scaling.factor' is missing");
    rope.factor = factor.value_or(1);
    if (rope.type == RopeType::Llama3) {
      if (rope.low_freq_factor.has_value() != rope.high_freq_factor.has_value() ||
          (rope.low_freq_factor && *rope.low_freq_factor > *rope.high_freq_factor)) {
        in_.fail(
            "'rope_scaling.low_freq_factor' must not be above 'rope_scaling.high_freq_factor'");
      }
    } else if (rope.type == RopeType::Yarn) {
      rope.beta_fast = in_.number_or_null("rope_scaling.beta_fast", 1e-6, 1e6).value_or(32);
      rope.beta_slow = in_.number_or_null("rope_scaling.beta_slow", 1e-6, 1e6).value_or(1);
      rope.truncate = in_.flag("rope_scaling.truncate").value_or(family_.yarn_truncate);
      rope.attention_factor = in_.number_or_null("rope_scaling.attention_factor", 1e-6, 1e6);
      if (family_.attention == AttentionKind::Compressed && !rope.attention_factor) {
        rope.attention_factor = 1;
      }
      rope.mscale = in_.number_or_null("rope_scaling.mscale", 0, 1e3);
      rope.mscale_all_dim = in_.number_or_null("rope_scaling.mscale_all_dim", 0, 1e3);
      if (rope.theta <= 1) in_.fail("'rope_theta' must be above 1 for yarn");
      read_growth();
    } else if (rope.type == RopeType::LongRope) {
      if (!factor) rope.factor = static_cast<double>(p_.context) / rope.original_context;
      rope.attention_factor = in_.number_or_null("rope_scaling.attention_factor", 1e-6, 1e6);
      rope.short_mscale = in_.number_or_null("rope_scaling.short_mscale", 1e-6, 1e6);
      rope.long_mscale = in_.number_or_null("rope_scaling.long_mscale", 1e-6, 1e6);
      rope.short_factors = read_divisors("rope_scaling.short_factor");
      rope.long_factors = read_divisors("rope_scaling.long_factor");
      if (rope.original_context <= 1) {
        in_.fail("'rope_scaling.original_max_position_embeddings' must be above 1 for longrope");
      }
    } else if (rope.type == RopeType::Dynamic) {
      in_.warn(fmt::format(
          "dynamic rope scaling is not applied: answers may differ beyond {} tokens", p_.context));
    }
  }

  // One for each frequency; empty where the config has none.
  std::vector<double> read_divisors(std::string_view key) {
    const auto divisors = in_.config().floats(key);
    if (!divisors) return {};
    const auto count = static_cast<size_t>(p_.rotary_dim / 2);
    if (divisors->size() != count) {
      in_.fail(fmt::format("'{}' has {} entries, expected {}", key, divisors->size(), count));
    } else if (!std::ranges::all_of(*divisors,
                                    [](double x) { return std::isfinite(x) && x > 0; })) {
      in_.fail(fmt::format("'{}' has entries that are not above 0", key));
    }
    return *divisors;
  }

  void read_growth() {
    const auto growth = in_.number_or_null("rope_scaling.llama_4_scaling_beta", 0, 1e3);
    if (growth.value_or(0) == 0) return;
    p_.grown_queries = {static_cast<float>(*growth), static_cast<int32_t>(std::clamp<double>(
                                                         p_.rope.original_context, 1, INT32_MAX))};
  }
};

}  // namespace

void read_rope(const ParamPart& part) {
  RopePart(part).read_rope();
}

}  // namespace ktx::arch
