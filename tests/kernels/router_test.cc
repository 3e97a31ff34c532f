// Routing against a naive implementation, in all variants; the sort of pairs; and the
// expert products against plain ones.
#include "kernels/router/router.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/matmul/experts.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed route(const RouterAttrs& attrs, std::vector<float> logits, const std::vector<float>& bias,
             Isa isa = Isa::Scalar, const std::vector<float>& factors = {}) {
  const int64_t tokens = static_cast<int64_t>(logits.size()) / attrs.experts;
  Routed out;
  out.ids.resize(static_cast<size_t>(tokens * attrs.top_k));
  out.weights.resize(out.ids.size());
  std::vector<float> scratch(static_cast<size_t>(2 * attrs.experts + attrs.groups));
  RouterArgs a;
  a.logits = logits.data();
  a.logits_stride = attrs.experts;
  a.bias = bias.empty() ? nullptr : bias.data();
  a.factors = factors.empty() ? nullptr : factors.data();
  a.attrs = attrs;
  a.ids = out.ids.data();
  a.weights = out.weights.data();
  a.token_end = tokens;
  a.scratch = scratch.data();
  (*find_router("router", isa))(a);
  return out;
}

// The five sentences of RouterAttrs, word for word.
Routed naive(const RouterAttrs& attrs, const float* logits, const std::vector<float>& bias) {
  const auto n = static_cast<size_t>(attrs.experts);
  std::vector<double> score(n);
  double sum = 0;
  const float largest = *std::max_element(logits, logits + n);
  for (size_t e = 0; e < n; ++e) sum += std::exp(double{logits[e]} - largest);
  for (size_t e = 0; e < n; ++e) {
    score[e] = attrs.scoring == 0   ? std::exp(double{logits[e]} - largest) / sum
               : attrs.scoring == 1 ? 1 / (1 + std::exp(-double{logits[e]}))
                                    : std::sqrt(std::log1p(std::exp(double{logits[e]})));
  }
  std::vector<float> choice(n);
  for (size_t e = 0; e < n; ++e) {
    choice[e] = static_cast<float>(score[e]);
    if (!bias.empty()) choice[e] += bias[e];
  }
  std::set<int> kept;
  const int size = attrs.experts / attrs.groups;
  std::vector<std::pair<float, int>> groups;
  for (int g = 0; g < attrs.groups; ++g) {
    std::vector<float> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    const float value = attrs.group_score == 0 || size < 2 ? members[0] : members[0] + members[1];
    groups.push_back({-value, g});
  }
  std::sort(groups.begin(), groups.end());
  for (int g = 0; g < (attrs.groups > 1 ? attrs.groups_used : 1); ++g)
    kept.insert(groups[g].second);
  std::vector<std::pair<float, int>> order;
  for (int e = 0; e < attrs.experts; ++e) {
    if (kept.count(e / size)) order.push_back({-choice[static_cast<size_t>(e)], e});
  }
  std::sort(order.begin(), order.end());
  Routed out;
  double total = 0;
  for (int k = 0; k < attrs.top_k; ++k) total += score[static_cast<size_t>(order[k].second)];
  for (int k = 0; k < attrs.top_k; ++k) {
    out.ids.push_back(order[k].second);
    const double weight = score[static_cast<size_t>(order[k].second)];
    out.weights.push_back(
        static_cast<float>(weight / (attrs.normalize ? total + 1e-20 : 1) * attrs.scale));
  }
  return out;
}

// Experts of a token's id: their weights are the scores'.
TEST(Router, ATableNamesTheExpertsOfATokensId) {
  const RouterAttrs attrs{4, 2, static_cast<int32_t>(Scoring::SqrtSoftplus), 1, 1.5f};
  const std::vector<float> logits = {0, 1, -2, 3, 5, 0.5f, 0, -40};
  const std::vector<int32_t> table = {3, 1, 0, 0, 2, 3}, tokens = {2, 0};
  std::vector<int32_t> ids(4, -1);
  std::vector<float> weights(4), scratch(9);
  RouterArgs a;
  a.logits = logits.data();
  a.logits_stride = 4;
  a.table = table.data();
  a.tokens = tokens.data();
  a.attrs = attrs;
  a.ids = ids.data();
  a.weights = weights.data();
  a.token_end = 2;
  a.scratch = scratch.data();
  (*find_router("router", Isa::Scalar))(a);
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3, 3, 1}));
  const auto score = [](double x) { return std::sqrt(std::log1p(std::exp(x))); };
  EXPECT_NEAR(weights[0], 1.5 * score(-2) / (score(-2) + score(3)), 1e-6);
  EXPECT_NEAR(weights[1], 1.5 * score(3) / (score(-2) + score(3)), 1e-6);
  EXPECT_NEAR(weights[2], 1.5 * score(-40) / (score(-40) + score(0.5)), 1e-12);
  EXPECT_NEAR(weights[3], 1.5, 1e-6);
}

TEST(Router, AgreesWithTheNaiveOneInAllVariants) {
  Random random(31);
  for (int experts : {8, 64, 256}) {
    for (int top_k : {1, 2, 6}) {
      for (int scoring : {0, 1, 2}) {
        for (int normalize : {0, 1}) {
          for (int groups : {1, 4, 8}) {
            for (int group_score : {0, 1}) {
              for (bool with_bias : {false, true}) {
                if (experts / groups * 2 < top_k && groups > 1) continue;
                const RouterAttrs attrs{
                    experts,    top_k, scoring, normalize, 2.5f, groups, groups > 1 ? 2 : 1,
                    group_score};
                const int64_t tokens = 5;
                const auto logits = random.normals(tokens * experts, 2);
                std::vector<float> bias;
                if (with_bias) bias = random.normals(experts, 0.2f);
                const Routed got = route(attrs, logits, bias);
                for (int64_t t = 0; t < tokens; ++t) {
                  const Routed want = naive(attrs, logits.data() + t * experts, bias);
                  for (size_t k = 0; k < want.ids.size(); ++k) {
                    const size_t at = static_cast<size_t>(t * top_k) + k;
                    ASSERT_EQ(got.ids[at], want.ids[k]) << experts << " " << top_k << " " << groups;
                    ASSERT_NEAR(got.weights[at], want.weights[k], 1e-6 * 2.5);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

// By hand: of 4, 3.95, 3.9 and -5 the second is near the first (0.05 / 4), the third is not
// (0.1 / 4), and -5 is far; without the first, 3.9 is near 3.95.
TEST(Router, ASparseMixerWeighsWhatIsNearTheBestInARoundAnExpert) {
  RouterAttrs attrs{4, 3, static_cast<int32_t>(Scoring::SparseMixer)};
  const Routed found = route(attrs, {3.95f, 4, -5, 3.9f}, {});
  EXPECT_EQ(found.ids, (std::vector<int32_t>{1, 0, 3}));
  EXPECT_NEAR(found.weights[0], 1 / (1 + std::exp(-0.05)), 1e-6);
  EXPECT_NEAR(found.weights[1], 1 / (1 + std::exp(-0.05)), 1e-6);
  EXPECT_NEAR(found.weights[2], 1, 1e-6);
  // Below 0 the reach is a share of the smaller logit's size; of equal ones the first wins.
  const Routed below = route(attrs, {-4.05f, -4, -4.2f, -4}, {});
  EXPECT_EQ(below.ids, (std::vector<int32_t>{1, 3, 0}));
  EXPECT_NEAR(below.weights[0], 1 / (2 + std::exp(-0.05)), 1e-6);
  EXPECT_NEAR(below.weights[1], 1 / (1 + std::exp(-0.05)), 1e-6);
  attrs.scale = 2;
  const Routed scaled = route(attrs, {0, NAN, 0, NAN}, {}, Isa::Scalar, {1, 1, 3, 1});
  EXPECT_EQ(scaled.ids, (std::vector<int32_t>{0, 2, 1}));
  EXPECT_NEAR(scaled.weights[0], 1, 1e-6);
  EXPECT_NEAR(scaled.weights[1], 6, 1e-6);
}

TEST(Router, FactorsMultiplyTheWeightsOfTheChosen) {
  const RouterAttrs attrs{4, 2, 0, 1, 2.5f, 1, 1, 0};
  const std::vector<float> logits = {1, 3, 2, 0};
  const Routed plain = route(attrs, logits, {});
  const Routed scaled = route(attrs, logits, {}, Isa::Scalar, {7, 0.5f, -4, 7});
  EXPECT_EQ(scaled.ids, plain.ids);
  EXPECT_EQ(scaled.weights, (std::vector<float>{plain.weights[0] * 0.5f, plain.weights[1] * -4}));
}

TEST(Router, TiesGoToTheLowerExpertAndGroup) {
  const RouterAttrs plain{8, 3, 0, 1, 1, 1, 1, 0};
  EXPECT_EQ(route(plain, std::vector<float>(8, 1.5f), {}).ids, (std::vector<int32_t>{0, 1, 2}));
  const RouterAttrs grouped{8, 3, 1, 1, 1, 4, 2, 1};
  EXPECT_EQ(route(grouped, std::vector<float>(8, -2), {}).ids, (std::vector<int32_t>{0, 1, 2}));
}

TEST(Router, AlwaysGivesDifferentValidExperts) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    for (int scoring : {0, 1}) {
      for (int groups : {1, 4}) {
        const RouterAttrs attrs{8, 4, scoring, 1, 1, groups, groups > 1 ? 1 : 1, 1};
        for (int count : {1, 3, 8}) {
          std::vector<float> logits = {1, 2, 3, 4, 5, 6, 7, 8};
          for (int i = 0; i < count; ++i) logits[static_cast<size_t>(i)] = bad;
          const Routed got = route(attrs, logits, {});
          const std::set<int32_t> ids(got.ids.begin(), got.ids.end());
          EXPECT_EQ(ids.size(), 4u);
          EXPECT_GE(*ids.begin(), 0);
          EXPECT_LT(*ids.rbegin(), 8);
        }
      }
    }
  }
}

TEST(GroupExperts, SortsPairsByExpertAndKeepsTheirOrder) {
  const std::vector<int32_t> ids = {3, 0, 1, 3, 0, 3};
  std::vector<int32_t> order(6), offsets(6);
  GroupExpertsArgs a{ids.data(), 3, {5, 2}, order.data(), offsets.data()};
  (*find_group_experts("group_experts", Isa::Scalar))(a);
  EXPECT_EQ(order, (std::vector<int32_t>{1, 4, 2, 0, 3, 5}));
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 2, 3, 3, 6, 6}));
  a.tokens = 0;
  (*find_group_experts("group_experts", Isa::Scalar))(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>(6, 0)));
}

TEST(GroupExperts, SortsOnlyPairsOfItsOwnExperts) {
  const std::vector<int32_t> ids = {3, 0, 1, 3, 0, 3, 4, 2};
  std::vector<int32_t> order(8), offsets(4);
  // Experts 3, 1 and 4 are here, as matrices 0, 1 and 2.
  std::vector<float> places = {-1, 1, -1, 0, 2};
  GroupExpertsArgs a{ids.data(), 4, {3, 2}, order.data(), offsets.data(), places.data()};
  const auto group = *find_group_experts("group_experts", Isa::Scalar);
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 3, 4, 5}));
  EXPECT_EQ(order, (std::vector<int32_t>{0, 3, 5, 2, 6, 1, 4, 7}));
  // Whatever a plan says, matrices stay in range.
  places = {3, NAN, INFINITY, -1e30f, 2.5f};
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 0, 0, 1}));
  EXPECT_EQ(order, (std::vector<int32_t>{6, 0, 1, 2, 3, 4, 5, 7}));
}

// Immediate and deferred experts: of choices best first, the first two and the last of three.
TEST(GroupExperts, SortsOnlyPairsOfItsOwnRanks) {
  const std::vector<int32_t> ids = {3, 0, 1, 1, 3, 0, 0, 1, 3};
  std::vector<int32_t> order(9), offsets(5);
  GroupExpertsArgs a{ids.data(), 3, {4, 3, 0, 2}, order.data(), offsets.data()};
  const auto group = *find_group_experts("group_experts", Isa::Scalar);
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 2, 4, 4, 6}));
  EXPECT_EQ(order, (std::vector<int32_t>{1, 6, 3, 7, 0, 4, 2, 5, 8}));
  a.attrs = {4, 3, 2, 1};
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 1, 2, 2, 3}));
  EXPECT_EQ(order, (std::vector<int32_t>{5, 2, 8, 0, 1, 3, 4, 6, 7}));
  // Experts 0 and 3 are here, as matrices 0 and 1.
  const std::vector<float> places = {0, -1, -1, 1};
  offsets.resize(3);
  a = {ids.data(), 3, {2, 3, 2, 1}, order.data(), offsets.data(), places.data()};
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(order, (std::vector<int32_t>{5, 8, 0, 1, 2, 3, 4, 6, 7}));
}

TEST(GroupExperts, SortsOnlyPairsOfItsRange) {
  const std::vector<int32_t> ids = {3, 0, 1, 3, 0, 3, 4, 2};
  std::vector<int32_t> order(8), offsets(6);
  GroupExpertsArgs a{ids.data(), 4, {5, 2}, order.data(), offsets.data()};
  a.first = 2, a.end = 4;
  const auto group = *find_group_experts("group_experts", Isa::Scalar);
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 0, 0, 1, 4, 4}));
  EXPECT_EQ(order, (std::vector<int32_t>{7, 0, 3, 5, 1, 2, 4, 6}));
  a.first = 0, a.end = 0;
  group(a);
  EXPECT_EQ(offsets, (std::vector<int32_t>(6, 0)));
}

// One layer of experts, run whole and token by token.
struct ExpertLayer {
  static constexpr int32_t kExperts = 6, kTopK = 2;
  static constexpr int64_t kWidth = 256, kHidden = 512, kTokens = 300;
  Random random{32};
  Weights gate{random, DType::Q4_K, kExperts* kWidth, kHidden};
  Weights up{random, DType::Q5_K, kExperts* kWidth, kHidden};
  Weights down{random, DType::Q6_K, kExperts* kHidden, kWidth};
  std::vector<float> x = random.normals(kTokens * kHidden);
  std::vector<int32_t> ids;
  std::vector<float> weights = random.normals(kTokens * kTopK);
  std::vector<float> gate_bias, up_bias, gate_factors, up_factors;  // empty: none

  ExpertLayer() {
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto first = static_cast<int32_t>(random.below(kExperts));
      ids.push_back(first);
      ids.push_back(static_cast<int32_t>((first + 1 + random.below(kExperts - 1)) % kExperts));
    }
  }

  // `by_pair`: the terms in rows of their own, which sum_experts adds.
  std::vector<float> run(Isa isa, int64_t begin, int64_t count, bool accumulate,
                         bool by_pair = false) {
    std::vector<int32_t> order(static_cast<size_t>(count * kTopK)), offsets(kExperts + 1);
    (*find_group_experts("group_experts", isa))(
        {ids.data() + begin * kTopK, count, {kExperts, kTopK}, order.data(), offsets.data()});
    AlignedBytes scratch(experts_scratch_bytes(kHidden));
    const ExpertsArgs experts{count, kTopK, kExperts, order.data(), offsets.data(), scratch.data()};
    std::vector<float> h(static_cast<size_t>(count * kTopK * kWidth));
    std::vector<float> y(static_cast<size_t>(count * kHidden), accumulate ? 1.0f : NAN);
    ExpertsGateUpArgs g;
    g.experts = experts;
    g.gate = {{gate.data(), DType::Q4_K, Layout::Rows, kWidth, kHidden, gate.row_bytes()},
              kWidth * gate.row_bytes()};
    g.up = {{up.data(), DType::Q5_K, Layout::Rows, kWidth, kHidden, up.row_bytes()},
            kWidth * up.row_bytes()};
    const MatmulKernel gate_kernel = *find_matmul("matmul_rows_f32", DType::Q4_K, isa);
    g.gate_kernel = &gate_kernel;
    const MatmulKernel up_kernel = *find_matmul("matmul_rows_f32", DType::Q5_K, isa);
    g.up_kernel = &up_kernel;
    g.glu_fn = *find_rows("glu", isa);
    const auto or_null = [](const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); };
    g.gate_bias = or_null(gate_bias);
    g.up_bias = or_null(up_bias);
    g.gate_factors = or_null(gate_factors);
    g.up_factors = or_null(up_factors);
    g.x = x.data() + begin * kHidden;
    g.x_stride = kHidden;
    g.h = h.data();
    g.h_stride = kWidth;
    for (int32_t e = 0; e < kExperts; ++e) {
      experts_gate_up(g, e, 0, 100);
      experts_gate_up(g, e, 100, kWidth);
    }
    ExpertsDownArgs d;
    d.experts = experts;
    d.down = {{down.data(), DType::Q6_K, Layout::Rows, kHidden, kWidth, down.row_bytes()},
              kHidden * down.row_bytes()};
    const MatmulKernel down_kernel = *find_matmul("matmul_rows_f32", DType::Q6_K, isa);
    d.down_kernel = &down_kernel;
    d.h = h.data();
    d.h_stride = kWidth;
    d.weights = weights.data() + begin * kTopK;
    d.y = y.data();
    d.y_stride = kHidden;
    d.accumulate = accumulate;
    std::vector<float> pairs(by_pair ? static_cast<size_t>(count * kTopK * kHidden) : 0, NAN);
    if (by_pair) d.by_pair = true, d.accumulate = false, d.y = pairs.data();
    experts_down(d, 0, 64);        // with few enough outputs to stand side by side
    experts_down(d, 64, kHidden);  // too many of them when all tokens are there
    if (!by_pair) return y;
    const int32_t* own = ids.data() + begin * kTopK;
    (*find_sum_experts("sum_experts", isa))({pairs.data(), kTopK * kHidden, own, kTopK, y.data(),
                                             kHidden, kHidden, accumulate, 0, count});
    return y;
  }

  // y of one token in double.
  std::vector<double> plain(int64_t t) {
    std::vector<double> y(kHidden);
    for (int k = 0; k < kTopK; ++k) {
      const int64_t e = ids[static_cast<size_t>(t * kTopK + k)];
      std::vector<double> h;
      for (int64_t f = 0; f < kWidth; ++f) {
        double g = 0, u = 0;
        const auto gate_row = gate.row(e * kWidth + f), up_row = up.row(e * kWidth + f);
        for (size_t j = 0; j < gate_row.size(); ++j) {
          const double v = x[static_cast<size_t>(t * kHidden) + j];
          g += v * gate_row[j];
          u += v * up_row[j];
        }
        const auto at = static_cast<size_t>(e * kWidth + f);
        if (!gate_factors.empty()) g *= gate_factors[static_cast<size_t>(e)];
        if (!up_factors.empty()) u *= up_factors[static_cast<size_t>(e)];
        if (!gate_bias.empty()) g += gate_bias[at];
        if (!up_bias.empty()) u += up_bias[at];
        h.push_back(g / (1 + std::exp(-g)) * u);
      }
      for (int64_t n = 0; n < kHidden; ++n) {
        const auto row = down.row(e * kHidden + n);
        double sum = 0;
        for (size_t f = 0; f < row.size(); ++f) sum += h[f] * row[f];
        y[static_cast<size_t>(n)] += weights[static_cast<size_t>(t * kTopK + k)] * sum;
      }
    }
    return y;
  }
};

TEST(Experts, AgreeWithPlainProductsAndDoNotDependOnTheBatch) {
  ExpertLayer layer;
  for (Isa isa : usable_isas()) {
    const std::vector<float> whole = layer.run(isa, 0, ExpertLayer::kTokens, false);
    for (int64_t t : {0, 77, 149}) {
      const std::vector<double> plain = layer.plain(t);
      double size = 0;
      for (double v : plain) size = std::max(size, std::fabs(v));
      for (size_t n = 0; n < plain.size(); ++n) {
        ASSERT_NEAR(whole[static_cast<size_t>(t * ExpertLayer::kHidden) + n], plain[n],
                    1e-5 * size);
      }
      const std::vector<float> alone = layer.run(isa, t, 1, false);
      const auto begin = whole.begin() + t * ExpertLayer::kHidden;
      EXPECT_TRUE(same_bits(alone, {begin, begin + ExpertLayer::kHidden})) << name(isa);
    }
    const std::vector<float> added = layer.run(isa, 0, 3, true);
    EXPECT_NEAR(added[5], 1 + whole[5], 1e-3);
  }
}

// As where several hosts have computed them.
TEST(Experts, TermsOfPairsAddUpToTheSameBits) {
  ExpertLayer layer;
  for (Isa isa : usable_isas()) {
    for (const bool accumulate : {false, true}) {
      for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{ExpertLayer::kTokens}}) {
        EXPECT_EQ(layer.run(isa, 0, count, accumulate, true), layer.run(isa, 0, count, accumulate));
      }
    }
  }
}

TEST(Experts, FactorsStandBetweenProductsAndBiases) {
  ExpertLayer layer;
  const int64_t biases = ExpertLayer::kExperts * ExpertLayer::kWidth;
  layer.gate_factors = {2, 0.5f, -1, 3, 0.25f, 1};
  for (int variant = 0; variant < 2; ++variant) {  // one factor and bias, then both
    (variant ? layer.up_bias : layer.gate_bias) = layer.random.normals(biases);
    if (variant) layer.up_factors = {0.5f, 4, 1, -2, 3, 0.125f};
    for (Isa isa : usable_isas()) {
      const std::vector<float> whole = layer.run(isa, 0, ExpertLayer::kTokens, false);
      for (int64_t t : {0, 299}) {
        const std::vector<double> plain = layer.plain(t);
        double size = 0;
        for (double v : plain) size = std::max(size, std::fabs(v));
        for (size_t n = 0; n < plain.size(); ++n) {
          ASSERT_NEAR(whole[static_cast<size_t>(t * ExpertLayer::kHidden) + n], plain[n],
                      1e-5 * size);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
