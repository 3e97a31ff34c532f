// `hosts` and `network` of target files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/rules/target_yaml.h"
#include "tests/support/diag_text.h"

namespace ktx::rules {
namespace {

using ::testing::HasSubstr;

target::Target parse(const std::string& text, std::string* mistakes = nullptr) {
  DiagSink diags;
  target::Target target = parse_target(text, "lab.yaml", diags);
  const std::string text_of_all = ktx::testing::text_of(diags);
  if (mistakes) *mistakes = text_of_all;
  EXPECT_TRUE(mistakes || diags.errors() == 0) << text_of_all;
  return target;
}

TEST(TargetHosts, AreReadInTheirOrder) {
  const target::Target target = parse(
      "name: lab\n"
      "hosts:\n"
      "  - {name: big, cpu: {isa: avx512, cores: 64, memory_gib: 512, read_gbps: 300}}\n"
      "  - {name: n, count: 2, cpu: {isa: avx2, cores: 8}, network: {latency_us: 80}}\n"
      "network: {gbit: 25, latency_us: 20}\n");
  ASSERT_EQ(target.hosts.size(), 3u);
  EXPECT_EQ(target.hosts[0].name, "big");
  EXPECT_EQ(target.hosts[1].name, "n1");
  EXPECT_EQ(target.hosts[2].name, "n2");
  EXPECT_EQ(target.cpu.cores, 64);  // of the first one
  EXPECT_EQ(target.hosts[2].cpu.cores, 8);
  EXPECT_EQ(target.hosts[0].network_gbit, 25);
  EXPECT_EQ(target.hosts[0].network_latency_us, 20);
  EXPECT_EQ(target.hosts[1].network_gbit, 25);
  EXPECT_EQ(target.hosts[1].network_latency_us, 80);
}

TEST(TargetHosts, EachHasItsGpus) {
  const target::Target target = parse(
      "hosts:\n"
      "  - {name: a, gpus: [{name: X, compute_capability: 8.9, memory_gib: 24}]}\n"
      "  - {name: n, count: 2, gpus: [{count: 2, compute_capability: 9.0, memory_gib: 80}]}\n"
      "  - {name: c}\n");
  ASSERT_EQ(target.hosts.size(), 4u);
  ASSERT_EQ(target.gpus.size(), 1u);  // of the first one
  EXPECT_EQ(target.gpus[0].name, "X");
  EXPECT_TRUE(target.hosts[0].gpus.empty());
  for (const size_t host : {1, 2}) {
    ASSERT_EQ(target.hosts[host].gpus.size(), 2u);
    EXPECT_EQ(target.hosts[host].gpus[1].compute_major, 9);
    EXPECT_EQ(target.hosts[host].gpus[1].memory_bytes, uint64_t{80} << 30);
  }
  EXPECT_TRUE(target.hosts[3].gpus.empty());
  // As before, outside of `hosts`.
  EXPECT_EQ(parse("gpus: [{compute_capability: 9}]\nhosts: [{name: a}, {name: b}]\n").gpus.size(),
            1u);
}

TEST(TargetHosts, MistakesAreNamed) {
  const auto mistake = [](const std::string& text) {
    std::string mistakes;
    parse(text, &mistakes);
    return mistakes;
  };
  EXPECT_THAT(mistake("hosts: {a: 1}\n"), HasSubstr("`hosts` must be a list of machines"));
  EXPECT_THAT(mistake("hosts: []\n"), HasSubstr("`hosts` must be a list of machines"));
  EXPECT_THAT(mistake("hosts: [{cpu: {cores: 2}}]\n"), HasSubstr("a host needs a name"));
  EXPECT_THAT(mistake("hosts: [{name: a/b}]\n"), HasSubstr("a host needs a name"));
  EXPECT_THAT(mistake("hosts: [{name: a}, {name: a}]\n"), HasSubstr("two hosts have the name 'a'"));
  EXPECT_THAT(mistake("hosts: [{name: n1}, {name: n, count: 2}]\n"),
              HasSubstr("two hosts have the name 'n1'"));
  EXPECT_THAT(mistake("hosts: [{name: a, count: 64}, {name: b}]\n"),
              HasSubstr("more than 64 hosts"));
  EXPECT_THAT(mistake("hosts: [{name: a}, {name: b, gpus: [{memory_gib: 24}]}]\n"),
              HasSubstr("a GPU needs its compute_capability"));
  EXPECT_THAT(
      mistake("gpus: [{compute_capability: 9}]\n"
              "hosts: [{name: a, gpus: [{compute_capability: 9}]}, {name: b}]\n"),
      HasSubstr("`gpus` outside of `hosts` are those of the first host, a, which has some"));
  EXPECT_THAT(mistake("cpu: {cores: 2}\nhosts: [{name: a}]\n"),
              HasSubstr("a target with `hosts` has the `cpu` of each in its entry"));
  EXPECT_THAT(mistake("hosts: [{name: a}]\nnetwork: {gbits: 1}\n"),
              HasSubstr("did you mean 'gbit'?"));
  EXPECT_THAT(mistake("hosts: [{name: a}]\nnetwork: {gbit: -1}\n"),
              HasSubstr("`gbit` must be a number from 0.001"));
}

}  // namespace
}  // namespace ktx::rules
