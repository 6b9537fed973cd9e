#include "partita/base/error.hpp"
#include "src/system/open_locked.hpp"
#include "src/system/real_path.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace partita::files_test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder =
        fs::canonical(fs::temp_directory_path()) / ("partita-" + std::string(test->name()) + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string file(const char* name) const { return folder / name; }

  fs::path folder;
};

TEST_F(Files, OneOpeningAloneHoldsTheLock) {
  const int first = open_locked(file("a"));
  ASSERT_GE(first, 0);
  EXPECT_EQ(open_locked(file("a")), -1);
  EXPECT_EQ(errno, EWOULDBLOCK);
  fs::rename(file("a"), file("b"));  // the name is free, but the file is still locked
  const int second = open_locked(file("a"));
  EXPECT_GE(second, 0);
  EXPECT_EQ(open_locked(file("b")), -1);
  close(first);
  const int third = open_locked(file("b"));
  EXPECT_GE(third, 0);
  close(second);
  close(third);
  EXPECT_EQ(open_locked(file("none/a")), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(Files, ALinkIsNotFollowed) {
  std::ofstream(file("victim")) << "text";
  fs::create_symlink("victim", file("link"));
  EXPECT_EQ(open_locked(file("link")), -1);
  EXPECT_EQ(errno, ELOOP);
}

TEST_F(Files, PathsFollowLinksToWhatIsNotThereYet) {
  EXPECT_EQ(real_path(file("a")), file("a"));
  fs::create_symlink("a", file("near"));
  fs::create_symlink(file("near"), file("far"));
  for (const char* there : {"not there", "there"}) {
    for (const char* name : {"a", "near", "far"}) EXPECT_EQ(real_path(file(name)), file("a")) << name << ", " << there;
    std::ofstream(file("a")) << "text";
  }
  fs::create_symlink("round", file("round"));
  EXPECT_THROW(real_path(file("round")), Error) << "a circular link, which cannot be opened";
}

}  // namespace
}  // namespace partita::files_test
