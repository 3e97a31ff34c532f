// Routing and expert products on the GPU against the scalar CPU ops and sums in double.
#include "kernels/cuda/experts/cuda_experts.h"

#include <algorithm>

#include "kernels/router/router.h"
#include "kernels/rows/glu.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaExperts = CudaTest;

void group_on_host(const std::vector<int32_t>& ids, int32_t experts, std::vector<int32_t>& order,
                   std::vector<int32_t>& offsets) {
  order.clear();
  offsets.assign(1, 0);
  for (int32_t e = 0; e < experts; ++e) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == e) order.push_back(static_cast<int32_t>(i));
    }
    offsets.push_back(static_cast<int32_t>(order.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) order.push_back(static_cast<int32_t>(i));
  }
}

// top_k different experts a token; every `padding`-th token is padding.
std::vector<int32_t> random_ids(Random& random, int64_t tokens, int32_t experts, int32_t top_k,
                                int64_t padding) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < top_k) {
      const auto e = static_cast<int32_t>(random.below(random.below(3) ? experts : 2));
      if (std::ranges::find(chosen, e) == chosen.end()) chosen.push_back(e);
      if (padding && t % padding == padding - 1) chosen.assign(static_cast<size_t>(top_k), -1);
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

TEST_F(CudaExperts, GroupingIsTheStableSort) {
  Random random(71);
  for (int32_t experts : {2, 8, 128, 256}) {
    for (int64_t tokens : {1, 3, 64, 600}) {
      for (int64_t padding : {0, 4}) {
        const int32_t top_k = std::min(experts, 8);
        const std::vector<int32_t> ids = random_ids(random, tokens, experts, top_k, padding);
        std::vector<int32_t> order, offsets;
        group_on_host(ids, experts, order, offsets);
        Gpu<int32_t> gpu_ids(ids), gpu_order(ids.size()),
            gpu_offsets(static_cast<size_t>(experts + 1));
        CudaGroupExpertsArgs args;
        args.ids = gpu_ids.data();
        args.tokens = tokens;
        args.attrs.experts = experts;
        args.attrs.top_k = top_k;
        args.order = gpu_order.data();
        args.offsets = gpu_offsets.data();
        ASSERT_TRUE(ran(launch_group_experts(args, nullptr)));
        EXPECT_EQ(gpu_offsets.read(), offsets) << experts << " " << tokens;
        EXPECT_EQ(gpu_order.read(), order) << experts << " " << tokens;
      }
    }
  }
}

// Pairs of experts on other devices come last, in their order, like padding.
TEST_F(CudaExperts, GroupingKeepsToTheExpertsThatAreHere) {
  Random random(75);
  for (int32_t experts : {8, 128, 256}) {
    for (int32_t here : {1, experts / 3, experts - 1}) {
      for (int64_t tokens : {1, 3, 64, 600}) {
        std::vector<float> places(static_cast<size_t>(experts), -1.0f);
        int32_t next = 0;
        for (int32_t e = 0; e < experts; ++e) {
          const bool last = experts - e <= here - next;
          if (next < here && (last || random.below(2))) places[e] = static_cast<float>(next++);
        }
        if (experts == 8) places[7] = places[7] < 0 ? NAN : places[7];
        const std::vector<int32_t> ids = random_ids(random, tokens, experts, 6, 4);
        std::vector<int32_t> local, order, offsets;
        for (int32_t id : ids) {
          local.push_back(id < 0 || !(places[id] >= 0) ? -1 : static_cast<int32_t>(places[id]));
        }
        group_on_host(local, here, order, offsets);
        Gpu<int32_t> gpu_ids(ids), gpu_order(ids.size()),
            gpu_offsets(static_cast<size_t>(here + 1));
        Gpu<float> gpu_places(places);
        CudaGroupExpertsArgs args;
        args.ids = gpu_ids.data();
        args.tokens = tokens;
        args.attrs = {here, 6};
        args.places = gpu_places.data();
        args.routed = experts;
        args.order = gpu_order.data();
        args.offsets = gpu_offsets.data();
        Gpu<uint64_t> counts(std::vector<uint64_t>(static_cast<size_t>(here), 7));
        args.counts = counts.data();
        ASSERT_TRUE(ran(launch_group_experts(args, nullptr)));
        const std::vector<uint64_t> counted = counts.read();
        for (int32_t e = 0; e < here; ++e) {
          ASSERT_EQ(counted[e], static_cast<uint64_t>(7 + offsets[e + 1] - offsets[e]));
        }
        EXPECT_EQ(gpu_offsets.read(), offsets) << here << " of " << experts << ", " << tokens;
        EXPECT_EQ(gpu_order.read(), order) << here << " of " << experts << ", " << tokens;
      }
    }
  }
}

// Choices of other ranks come last, too, whether their experts are here or not.
TEST_F(CudaExperts, GroupingKeepsToTheRanksAsked) {
  Random random(76);
  constexpr int32_t kExperts = 128, kTopK = 8;
  for (int64_t tokens : {1, 3, 64, 600}) {
    for (const auto& [first, ranks] : {std::pair{0, 5}, std::pair{5, 3}, std::pair{7, 1}}) {
      const std::vector<int32_t> ids = random_ids(random, tokens, kExperts, kTopK, 4);
      std::vector<int32_t> local = ids, order, offsets;
      for (size_t p = 0; p < ids.size(); ++p) {
        const auto rank = static_cast<int32_t>(p % kTopK);
        if (rank < first || rank >= first + ranks) local[p] = -1;
      }
      group_on_host(local, kExperts, order, offsets);
      Gpu<int32_t> gpu_ids(ids), gpu_order(ids.size()), gpu_offsets(size_t{kExperts} + 1);
      CudaGroupExpertsArgs args;
      args.ids = gpu_ids.data();
      args.tokens = tokens;
      args.attrs = {kExperts, kTopK, first, ranks};
      args.order = gpu_order.data();
      args.offsets = gpu_offsets.data();
      ASSERT_TRUE(ran(launch_group_experts(args, nullptr)));
      EXPECT_EQ(gpu_offsets.read(), offsets) << tokens << " " << first;
      EXPECT_EQ(gpu_order.read(), order) << tokens << " " << first;
    }
  }
}

TEST_F(CudaExperts, GroupingOfTheFirstExpertsLeavesOutTheRest) {
  Random random(76);
  for (int32_t experts : {8, 128}) {
    for (int32_t end : {0, 1, experts / 2, experts, experts + 9}) {
      const int64_t tokens = 64;
      const std::vector<int32_t> ids = random_ids(random, tokens, experts, 6, 4);
      std::vector<int32_t> local = ids, order, offsets;
      for (int32_t& id : local) id = id < end ? id : -1;
      group_on_host(local, experts, order, offsets);
      Gpu<int32_t> gpu_ids(ids), gpu_order(ids.size()),
          gpu_offsets(static_cast<size_t>(experts + 1));
      CudaGroupExpertsArgs args;
      args.ids = gpu_ids.data();
      args.tokens = tokens;
      args.attrs = {experts, 6};
      args.order = gpu_order.data();
      args.offsets = gpu_offsets.data();
      args.end = end;
      ASSERT_TRUE(ran(launch_group_experts(args, nullptr)));
      EXPECT_EQ(gpu_offsets.read(), offsets) << end << " of " << experts;
      EXPECT_EQ(gpu_order.read(), order) << end << " of " << experts;
    }
  }
}

struct RouterCase {
  int32_t experts, top_k;
  Scoring scoring;
  bool normalize;
  int32_t groups, groups_used;
  GroupScore group_score;
  bool bias;
  bool table = false;  // choices by token id
};

TEST_F(CudaExperts, RouterChoosesAsTheScalarOne) {
  Random random(72);
  const RouterCase cases[] = {
      {8, 2, Scoring::Softmax, true, 1, 1, GroupScore::Best, false},
      {128, 8, Scoring::Softmax, true, 1, 1, GroupScore::Best, false},
      {60, 4, Scoring::Softmax, false, 1, 1, GroupScore::Best, false},
      {160, 6, Scoring::Softmax, false, 8, 3, GroupScore::Best, false},
      {256, 8, Scoring::Sigmoid, true, 8, 4, GroupScore::SumOfTwoBest, true},
      {8, 6, Scoring::Softmax, true, 4, 2, GroupScore::Best, false},  // beyond the groups
      {96, 8, Scoring::Sigmoid, true, 3, 2, GroupScore::SumOfTwoBest, true},
      {64, 32, Scoring::Sigmoid, false, 32, 5, GroupScore::SumOfTwoBest, false},
      {384, 8, Scoring::Sigmoid, true, 1, 1, GroupScore::Best, true},
      {1000, 32, Scoring::Softmax, true, 1, 1, GroupScore::Best, false},
      {256, 6, Scoring::SqrtSoftplus, true, 1, 1, GroupScore::Best, true},
      {384, 6, Scoring::SqrtSoftplus, true, 1, 1, GroupScore::Best, false, true},
      {16, 2, Scoring::SparseMixer, false, 1, 1, GroupScore::Best, false},
      {40, 3, Scoring::SparseMixer, true, 1, 1, GroupScore::Best, false},
      {7, 3, Scoring::Sigmoid, false, 1, 1, GroupScore::Best, false, true},
  };
  for (const RouterCase& c : cases) {
    for (int64_t tokens : {1, 33}) {
      std::vector<float> logits = random.normals(tokens * c.experts);
      if (tokens > 4) {  // ties and what is not a number
        std::fill_n(logits.begin() + 2 * c.experts, c.experts, 0.5f);
        for (int64_t i = 4 * c.experts; i < 8 * c.experts; ++i) {
          float& v = logits[static_cast<size_t>(i)];
          v = std::round(v * 2) / 2;
        }
        if (c.scoring == Scoring::Sigmoid) logits[static_cast<size_t>(3 * c.experts + 1)] = NAN;
      }
      const std::vector<float> bias = random.normals(c.experts, 0.1f);
      RouterArgs host;
      host.attrs.experts = c.experts;
      host.attrs.top_k = c.top_k;
      host.attrs.scoring = static_cast<int32_t>(c.scoring);
      host.attrs.normalize = c.normalize;
      host.attrs.scale = 2.5f;
      host.attrs.groups = c.groups;
      host.attrs.groups_used = c.groups_used;
      host.attrs.group_score = static_cast<int32_t>(c.group_score);
      host.logits = logits.data();
      host.logits_stride = c.experts;
      host.bias = c.bias ? bias.data() : nullptr;
      const std::vector<float> factors = random.normals(c.experts);
      host.factors = c.normalize ? factors.data() : nullptr;
      constexpr int64_t kVocabulary = 50;
      std::vector<int32_t> table(static_cast<size_t>(kVocabulary * c.top_k)), token_ids;
      for (int32_t& expert : table) expert = static_cast<int32_t>(random.below(c.experts));
      for (int64_t t = 0; t < tokens; ++t) {
        token_ids.push_back(static_cast<int32_t>(random.below(kVocabulary)));
      }
      if (c.table) host.table = table.data(), host.tokens = token_ids.data();
      std::vector<int32_t> ids(static_cast<size_t>(tokens * c.top_k));
      std::vector<float> weights(ids.size()),
          scratch(static_cast<size_t>(2 * c.experts + c.groups));
      host.ids = ids.data();
      host.weights = weights.data();
      host.token_end = tokens;
      host.scratch = scratch.data();
      (*find_router("router", Isa::Scalar))(host);

      Gpu<float> gpu_logits(logits), gpu_bias(bias), gpu_factors(factors);
      Gpu<float> gpu_weights(weights.size());
      Gpu<int32_t> gpu_ids(ids.size());
      CudaRouterArgs args;
      args.logits = gpu_logits.data();
      args.logits_stride = c.experts;
      args.bias = c.bias ? gpu_bias.data() : nullptr;
      args.factors = c.normalize ? gpu_factors.data() : nullptr;
      args.attrs = host.attrs;
      args.tokens = tokens;
      Gpu<int32_t> gpu_table(table), gpu_tokens(token_ids);
      if (c.table) {
        args.table = gpu_table.data(), args.table_rows = kVocabulary;
        args.token_ids = gpu_tokens.data();
      }
      args.ids = gpu_ids.data();
      args.weights = gpu_weights.data();
      ASSERT_TRUE(ran(launch_router(args, nullptr)));
      EXPECT_EQ(gpu_ids.read(), ids)
          << c.experts << " experts, " << tokens << " tokens, seed " << random.seed();
      const std::vector<float> got = gpu_weights.read();
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(weights[i])) continue;
        EXPECT_NEAR(got[i], weights[i], 1e-5f + 1e-5f * std::fabs(weights[i])) << i;
      }
    }
  }
}

TEST_F(CudaExperts, PaddingIsRoutedNowhere) {
  Random random(73);
  Gpu<float> logits(random.normals(2 * 8)), weights(4);
  Gpu<int32_t> ids(4), position(std::vector<int32_t>{3, -1});
  CudaRouterArgs args;
  args.logits = logits.data();
  args.logits_stride = 8;
  args.position = position.data();
  args.attrs.experts = 8;
  args.attrs.top_k = 2;
  args.tokens = 2;
  args.ids = ids.data();
  args.weights = weights.data();
  ASSERT_TRUE(ran(launch_router(args, nullptr)));
  const std::vector<int32_t> got = ids.read();
  EXPECT_GE(got[0], 0);
  EXPECT_EQ(got[2], -1);
  EXPECT_EQ(got[3], -1);
}

struct ExpertTypes {
  DType gate, up, down;
};
// The unit and whether there are biases.
struct ExpertUnit {
  GluAttrs glu;
  bool bias = false;
};

void check_experts(Random& random, ExpertTypes types, int32_t experts, int32_t top_k,
                   int64_t tokens, bool accumulate, ExpertUnit unit = {}) {
  SCOPED_TRACE(testing::Message() << name(types.gate) << " " << name(types.down) << " experts "
                                  << experts << " top " << top_k << " tokens " << tokens << " seed "
                                  << random.seed());
  const int64_t hidden = 512, width = 256, pairs = tokens * top_k;
  const GpuWeights gate(random, types.gate, width, hidden, experts);
  const GpuWeights up(random, types.up, width, hidden, experts);
  const GpuWeights down(random, types.down, hidden, width, experts);
  const std::vector<int32_t> ids = random_ids(random, tokens, experts, top_k, tokens > 1 ? 5 : 0);
  std::vector<int32_t> order, offsets;
  group_on_host(ids, experts, order, offsets);
  const std::vector<float> x = random.normals(tokens * hidden, 0.05f);
  std::vector<float> pair_weights;
  for (int64_t i = 0; i < pairs; ++i) pair_weights.push_back(random.uniform(0, 1));
  const std::vector<float> before = random.normals(tokens * hidden);
  Gpu<int32_t> gpu_order(order), gpu_offsets(offsets);
  Gpu<float> gpu_x(x), h(std::vector<float>(static_cast<size_t>(pairs * width))), y(before),
      gpu_weights(pair_weights);

  CudaExpertsGateUpArgs first;
  first.gate = gate.gpu();
  first.up = up.gpu();
  first.attrs.experts = experts;
  first.attrs.top_k = top_k;
  first.attrs.activation = unit.glu.activation;
  first.attrs.limit = unit.glu.limit;
  const std::vector<float> no(static_cast<size_t>(experts * hidden));
  const std::vector<float> biases[] = {unit.bias ? random.normals(experts * width) : no,
                                       unit.bias ? random.normals(experts * width) : no,
                                       unit.bias ? random.normals(experts * hidden) : no};
  Gpu<float> gate_bias(biases[0]), up_bias(biases[1]), down_bias(biases[2]);
  if (unit.bias) first.gate_bias = gate_bias.data(), first.up_bias = up_bias.data();
  first.order = gpu_order.data();
  first.offsets = gpu_offsets.data();
  first.x = gpu_x.data();
  first.x_stride = hidden;
  first.tokens = tokens;
  first.h = h.data();
  first.h_stride = width;
  GpuWorkspace workspace1(first, cuda_experts_gate_up_workspace(first));
  ASSERT_TRUE(ran(launch_experts_gate_up(first, nullptr)));

  CudaExpertsDownArgs second;
  second.down = down.gpu();
  second.attrs = first.attrs;
  second.attrs.accumulate = accumulate;
  if (unit.bias) second.bias = down_bias.data();
  second.order = gpu_order.data();
  second.offsets = gpu_offsets.data();
  second.weights = gpu_weights.data();
  second.h = h.data();
  second.h_stride = width;
  second.tokens = tokens;
  second.y = y.data();
  second.y_stride = hidden;
  GpuWorkspace workspace2(second, cuda_experts_down_workspace(second));
  ASSERT_TRUE(ran(launch_experts_down(second, nullptr)));

  std::vector<float> want_h(static_cast<size_t>(pairs * width)), want_y(before);
  if (!accumulate) std::ranges::fill(want_y, 0.0f);
  const std::vector<float> got_h = h.read();
  for (int32_t e = 0; e < experts; ++e) {
    for (int32_t i = offsets[e]; i < offsets[e + 1]; ++i) {
      const int32_t pair = order[i];
      const float* in = x.data() + pair / top_k * hidden;
      for (int64_t n = 0; n < width; ++n) {
        const auto at = static_cast<size_t>(e * width + n);
        const double g = dot(gate.row(e, n), in) + biases[0][at];
        const double u = dot(up.row(e, n), in) + biases[1][at];
        want_h[static_cast<size_t>(pair * width + n)] =
            row_glu(unit.glu, static_cast<float>(g), static_cast<float>(u));
      }
      for (int64_t n = 0; n < hidden; ++n) {  // of the h that the GPU made
        want_y[static_cast<size_t>(pair / top_k * hidden + n)] += static_cast<float>(
            pair_weights[pair] * (dot(down.row(e, n), got_h.data() + pair * width) +
                                  biases[2][static_cast<size_t>(e * hidden + n)]));
      }
    }
  }
  EXPECT_LT(relative_error(got_h, want_h), 3 * kHalfProducts);
  EXPECT_LT(relative_error(y.read(), want_y), kHalfProducts);
}

TEST_F(CudaExperts, ProductsAgreeWithTheSumsForEveryRouting) {
  Random random(74);
  const ExpertTypes q4{DType::Q4_K, DType::Q4_K, DType::Q6_K};
  for (int64_t tokens : {1, 2, 5, 16, 40, 150}) {
    check_experts(random, q4, 8, 3, tokens, false);
    check_experts(random, q4, 8, 3, tokens, true);
  }
  check_experts(random, q4, 40, 8, 1, false);
  check_experts(random, q4, 40, 8, 9, true);
}

TEST_F(CudaExperts, ProductsTakeEveryUnitAndBiases) {
  Random random(76);
  const ExpertTypes q4{DType::Q4_K, DType::Q4_K, DType::Q6_K};
  const ExpertTypes mxfp4{DType::MXFP4, DType::MXFP4, DType::MXFP4};
  const ExpertTypes apart{DType::Q4_K, DType::Q5_K, DType::Q8_0};
  for (const ExpertTypes& types : {q4, mxfp4, apart}) {
    for (int64_t tokens : {1, 5, 40, 150}) {
      check_experts(random, types, 6, 3, tokens, false, {{2, 0.7f}, true});
      check_experts(random, types, 6, 3, tokens, true, {{1, 0}, false});
      check_experts(random, types, 6, 3, tokens, true, {{0, 0.5f}, true});
    }
  }
}

TEST_F(CudaExperts, ProductsTakeEveryMarlinType) {
  Random random(75);
  for (DType dtype : kMarlinTypes) {
    check_experts(random, {dtype, dtype, dtype}, 4, 2, 3, false);
    check_experts(random, {dtype, dtype, dtype}, 4, 2, 60, false);
  }
  check_experts(random, {DType::Q4_K, DType::Q5_K, DType::Q8_0}, 4, 2, 3, false);
  check_experts(random, {DType::Q4_K, DType::Q5_K, DType::Q8_0}, 4, 2, 60, false);
}

}  // namespace
}  // namespace ktx::kernels
