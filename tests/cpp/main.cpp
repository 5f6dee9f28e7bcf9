// doctest's main, compiled once for all programs, and the list of what was skipped.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "back_end.hpp"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// One line a skip, as tests/support/ledger.py reads it; CTest gives the program's name.
void note(const std::string& name, const std::string& reason) {
  const std::string line = variable("ONECOPY_TEST_NAME") + "::" + name + ": " + reason + "\n";
  std::cerr << "skipped: " << line;
  if (const auto path = variable("ONECOPY_SKIPS"); !path.empty()) std::ofstream(path, std::ios::app) << line;
}

std::string running;

// Knows which case runs, and which do not run because of a skip() beside their name.
struct Skips : doctest::IReporter {
  explicit Skips(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData& test) override { running = test.m_name; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData& test) override {
    // A case with a description is run by another one, by name.
    if (test.m_skip && test.m_description == nullptr) note(test.m_name, "not on this back end");
  }
};
REGISTER_LISTENER("skips", 1, Skips);

}  // namespace

void onecopy::testing::report_skip(const char* reason) { note(running, reason); }
