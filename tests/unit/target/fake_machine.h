// A fake machine: /proc and /sys as files below a folder of the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ktx::target {

class FakeMachine : public ::testing::Test {
 protected:
  FakeMachine()
      : root_(std::filesystem::temp_directory_path() /
              ("ktx_target_" + std::to_string(::getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(root_);
  }
  ~FakeMachine() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void put_cpus(int packages, int cores, int threads) {
    int cpu = 0;
    for (int thread = 0; thread < threads; ++thread) {
      for (int package = 0; package < packages; ++package) {
        for (int core = 0; core < cores; ++core, ++cpu) {
          const std::string at = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
          put(at + "physical_package_id", std::to_string(package) + "\n");
          put(at + "core_id", std::to_string(core) + "\n");
        }
      }
    }
    put("/sys/devices/system/cpu/online", "0-" + std::to_string(cpu - 1) + "\n");
  }
  void put_node(int node, const std::string& cpus) {
    put("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist", cpus + "\n");
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace ktx::target
