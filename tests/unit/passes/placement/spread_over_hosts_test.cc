#include "lib/passes/placement/spread_over_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/passes/cost/target_devices.h"

namespace ktx::passes {
namespace {

std::vector<int> counts(const std::vector<int>& host_of_layer, size_t hosts) {
  EXPECT_TRUE(std::ranges::is_sorted(host_of_layer));
  std::vector<int> layers(hosts);
  for (int host : host_of_layer) ++layers[static_cast<size_t>(host)];
  return layers;
}

std::vector<int> spread(size_t layers, const LayerLoad& layer, const LayerLoad& first,
                        const std::vector<HostRoom>& hosts) {
  const std::vector<LayerLoad> all(layers, layer);
  return counts(spread_layers(all, first, hosts), hosts.size());
}

using Counts = std::vector<int>;

TEST(SpreadOverHosts, LayersGoByRates) {
  EXPECT_EQ(spread(32, {1, 1}, {}, {{1, 0}, {1, 0}}), (Counts{16, 16}));
  EXPECT_EQ(spread(30, {1, 1}, {}, {{300, 0}, {200, 0}, {100, 0}}), (Counts{15, 10, 5}));
}

TEST(SpreadOverHosts, WhatTheFirstHostHasBesidesCounts) {
  EXPECT_EQ(spread(32, {1, 1}, {8, 8}, {{1, 0}, {1, 0}}), (Counts{12, 20}));
  // Even where it is most of the model: the others share the layers.
  EXPECT_EQ(spread(4, {1, 1}, {100, 100}, {{1, 0}, {1, 0}, {1, 0}}), (Counts{0, 2, 2}));
}

TEST(SpreadOverHosts, MemoryIsALimit) {
  EXPECT_EQ(spread(32, {1, 2}, {}, {{1, 16}, {1, 0}}), (Counts{8, 24}));
  EXPECT_EQ(spread(32, {1, 2}, {4, 4}, {{1, 16}, {1, 64}}), (Counts{6, 26}));
  // All of it is too small: by rates.
  EXPECT_EQ(spread(32, {1, 2}, {}, {{1, 16}, {1, 16}}), (Counts{16, 16}));
}

TEST(SpreadOverHosts, GpusCountWithWhatFitsThem) {
  // All of it fits the second one's GPU, ten times as fast as the CPUs.
  EXPECT_EQ(spread(33, {1, 1}, {}, {{1, 0}, {1, 0, {{10, 100}}}}), (Counts{3, 30}));
  // Half of it fits: 10 layers in 1 s, each of the others 1 s.
  EXPECT_EQ(spread(30, {1, 1}, {}, {{1, 0}, {1, 0, {{10, 10}}}}), (Counts{10, 20}));
  // Experts go last: the GPU holds the rest of all its layers, which is what is read most.
  EXPECT_EQ(spread(20, {10, 10, 5, 9}, {}, {{1, 0}, {1, 0, {{1e9, 20}}}}), (Counts{6, 14}));
  // Memory of both counts.
  EXPECT_EQ(spread(32, {1, 2}, {}, {{1, 64}, {100, 8, {{100, 8}}}}), (Counts{24, 8}));
}

TEST(SpreadOverHosts, FewerLayersThanHostsLeaveSomeWithout) {
  const Counts layers = spread(2, {1, 1}, {}, {{1, 0}, {1, 0}, {1, 0}, {1, 0}});
  EXPECT_EQ(std::ranges::count(layers, 1), 2);
  EXPECT_EQ(spread(0, {1, 1}, {}, {{1, 0}, {1, 0}}), (Counts{0, 0}));
}

TEST(HostLinks, TheSlowerHostCounts) {
  target::Target target;
  target.hosts.resize(3);
  target.hosts[0] = {"a", {}, 100, 10};
  target.hosts[1] = {"b", {}, 10, 40};
  target.hosts[2] = {"c", {}, 0, 0};
  const HostLink link = link_between(target, {}, {"b"});
  EXPECT_FALSE(link.assumed);
  EXPECT_DOUBLE_EQ(link.latency_seconds, 40e-6);
  EXPECT_NEAR(link.seconds(1'250'000), 40e-6 + 1e-3 / 0.94, 1e-6);
  EXPECT_FALSE(link_between(target, {}, {"c"}).assumed);  // the first one's
  target.hosts[0] = {"a", {}, 0, 0};
  EXPECT_TRUE(link_between(target, {"c"}, {}).assumed);
}

TEST(HostLinks, DevicesAreThoseOfTheTarget) {
  target::Target target;
  target.hosts.resize(2);
  target.hosts[0].name = "a";
  target.hosts[1].name = "b";
  target.gpus.resize(1);
  const auto has = [&](const char* name) {
    const auto device = target::parse_device_id(name);
    return device && has_device(target, *device);
  };
  for (const char* device : {"cpu", "b/cpu", "cuda:0"}) EXPECT_TRUE(has(device));
  for (const char* device : {"c/cpu", "b/cuda:0", "cuda:1", "auto", "x"}) {
    EXPECT_FALSE(has(device)) << device;
  }
  EXPECT_EQ(rules::placed_name(target, *rules::parse_device("a/cuda:0")), "cuda:0");
  EXPECT_EQ(rules::placed_name(target, *rules::parse_device("b/cpu")), "b/cpu");
}

}  // namespace
}  // namespace ktx::passes
