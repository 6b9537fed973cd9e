// A program may take all names of Partita and of the standard library unqualified.
#include <partita/partita.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <complex>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <ranges>
#include <regex>
#include <set>
#include <thread>
#include <unordered_map>
#include <variant>

using namespace std;
using namespace partita;

namespace {

Model net() {
  Model m("net");
  const Value x = m.input("in", {.channels = 4, .spatial = {8, 8}});
  m.softmax_cross_entropy("loss", m.linear("fc", x, {.features = 4}));
  return m;
}

}  // namespace

TEST(Names, OfTheStandardLibraryStayUnqualified) {
  vector<int> numbers(4);
  iota(begin(numbers), end(numbers), 1);
  vector<int> copied(size(numbers)), filled(3);
  copy(cbegin(numbers), cend(numbers), data(copied));
  fill(filled.begin(), filled.end(), 7);
  generate(filled.begin(), filled.end(), [next = 0]() mutable { return ++next; });
  reverse(copied.begin(), copied.end());
  sort(copied.begin(), copied.end());
  EXPECT_EQ(copied, numbers);
  EXPECT_EQ(accumulate(filled.begin(), filled.end(), 0), 6);
  EXPECT_EQ(max(min(3, 5), 2), 3);
  EXPECT_EQ(clamp(9, 0, 4), 4);
  int one = 1, two = 2;
  swap(one, two);
  EXPECT_EQ(exchange(one, 5), 2);
  EXPECT_EQ(find(numbers.begin(), numbers.end(), 3) - numbers.begin(), 2);
  EXPECT_EQ(count(numbers.begin(), numbers.end(), 3), 1);
  EXPECT_EQ(distance(numbers.begin(), next(numbers.begin(), 2)), 2);
  EXPECT_EQ(transform_reduce(numbers.begin(), numbers.end(), 0, plus<>(), negate<>()), -10);
  string text = "text";
  const string taken = move(text);
  EXPECT_EQ(hash<string>()(taken), hash<string>()("text"));
  EXPECT_EQ(to_string(7), "7");
  const auto half = bind(divides<double>(), placeholders::_1, 2);
  EXPECT_EQ(invoke(half, 3.0), 1.5);
  const auto [low, high] = minmax_element(numbers.begin(), numbers.end());
  EXPECT_EQ(*low + *high, 5);
  const function<int(int)> twice = [](int n) { return 2 * n; };
  EXPECT_EQ(apply(twice, make_tuple(4)), 8);
  variant<int, string> either = 3;
  EXPECT_TRUE(holds_alternative<int>(either));
  visit([](const auto&) {}, either);
  const optional<int> perhaps = make_optional(3);
  map<string, pair<int, double>> table{{"a", make_pair(1, 2.0)}};
  unordered_map<string, unique_ptr<int>> owners;
  owners.emplace("b", make_unique<int>(*perhaps));
  mutex lock;
  const lock_guard guard(lock);
  EXPECT_EQ(async(launch::deferred, [] { return 4; }).get(), 4);
  EXPECT_EQ(abs(complex<double>(3, 4)), 5);
  EXPECT_TRUE(regex_match("abc", regex("a.c")));
  span<int> view(numbers);
  EXPECT_EQ(views::all(view).size(), 4U);
  EXPECT_EQ(ranges::count(numbers, 1), 1);
  const array<int, 2> both{1, 2};
  EXPECT_EQ(get<1>(both), 2);
  const filesystem::path path("a/b");
  EXPECT_EQ(path.filename(), "b");
  const chrono::seconds second(1);
  EXPECT_EQ(duration_cast<chrono::milliseconds>(second).count(), 1000);
  mt19937 random(1);
  shuffle(numbers.begin(), numbers.end(), random);
}

TEST(Names, OfTheSystemStayUnqualified) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  char byte = 'x';
  EXPECT_EQ(write(ends[1], &byte, 1), 1);
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(close(ends[0]) + close(ends[1]), 0);
  EXPECT_GT(time(nullptr), 0);
  EXPECT_NE(signal(SIGUSR1, SIG_IGN), SIG_ERR);
  EXPECT_STREQ(index("abc", 'c'), "c");
  EXPECT_LT(send(-1, &byte, 1, 0), 0);
  EXPECT_LT(recv(-1, &byte, 1, 0), 0);
  EXPECT_LT(bind(-1, nullptr, 0), 0);
  EXPECT_GT(clock(), 0);
}

TEST(Names, OfPartitaStayUnqualified) {
  Model model = net();
  Strategy strategy("data=2");
  Workload workload{.batch = 4, .optimizer = {}};
  strategy.layer("*", {.output = "N@data"});
  const Plan plan = bind(model, strategy, workload);
  EXPECT_EQ(bind(net(), Strategy(strategy), {.batch = 4, .optimizer = {}}).hash(), plan.hash());
  const Model fixed = net();
  EXPECT_EQ(bind(fixed, strategy, workload).hash(), plan.hash());
  const Index elements = plan.layer("fc")->shape.volume();
  EXPECT_EQ(elements, 16);
  const Shape shape{{'N', 2}, {'C', 3}};
  const Tensor tensor(DType::f64, shape.names(), Box(shape));
  fill(tensor, shape, [](Index i) { return static_cast<double>(i); });
  EXPECT_EQ(tensor.get(5), 5);
  EXPECT_EQ(name(ScheduleKind::zb_h1), "zb-h1");
}
