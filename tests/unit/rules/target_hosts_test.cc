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
  EXPECT_THAT(mistake("hosts: [{name: a, gpus: []}]\n"), HasSubstr("GPUs of several hosts"));
  EXPECT_THAT(mistake("cpu: {cores: 2}\nhosts: [{name: a}]\n"),
              HasSubstr("a target with `hosts` has the `cpu` of each in its entry"));
  EXPECT_THAT(mistake("hosts: [{name: a}]\nnetwork: {gbits: 1}\n"),
              HasSubstr("did you mean 'gbit'?"));
  EXPECT_THAT(mistake("hosts: [{name: a}]\nnetwork: {gbit: -1}\n"),
              HasSubstr("`gbit` must be a number from 0.001"));
}

}  // namespace
}  // namespace ktx::rules
