// Parts that score by a few dimensions of each KV head: pca (Loki) and partial (InfiniGen).
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/support/scored_groups.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kDim = 16;

/// One [2, 16, 16] adapter of random elements, under the given name.
class HeadAdapters final : public AdapterSource {
 public:
  explicit HeadAdapters(std::string name) : name_(std::move(name)) {
    Random random(5);
    adapter_.shape = {2, kDim, kDim};
    for (std::int64_t i = 0; i < 2 * kDim * kDim; ++i) {
      adapter_.values.push_back(static_cast<float>(random.uniform() - 0.5));
    }
  }
  [[nodiscard]] Adapter adapter(std::int64_t layer, const std::string& name) const override {
    EXPECT_EQ(layer, 3);
    EXPECT_EQ(name, name_);
    return adapter_;
  }
  [[nodiscard]] double at(std::int64_t kv, std::int64_t row, std::int64_t column) const {
    return static_cast<double>(
        adapter_.values[static_cast<std::size_t>((kv * kDim + row) * kDim + column)]);
  }

 private:
  std::string name_;
  Adapter adapter_;
};

class ProjectedKeysTest : public ::testing::Test {
 protected:
  [[nodiscard]] double key(std::int64_t kv, Token token, std::int64_t i) const {
    return static_cast<double>(to_float(layer_.entries(48).keys.row(kv, token)[i]));
  }
  [[nodiscard]] double query(std::int64_t head, std::int64_t position, std::int64_t i) const {
    return static_cast<double>(layer_.query(position)[static_cast<std::size_t>(head * kDim + i)]);
  }
  /// (q A)[columns] . (k A)[columns] of a query at position 40.
  [[nodiscard]] double logit(const HeadAdapters& adapters, std::int64_t head, Token token,
                             const std::vector<std::int64_t>& columns) const {
    double sum = 0;
    for (const std::int64_t column : columns) {
      double q = 0;
      double k = 0;
      for (std::int64_t i = 0; i < kDim; ++i) {
        q += query(head, 40, i) * adapters.at(head / 3, i, column);
        k += key(head / 3, token, i) * adapters.at(head / 3, i, column);
      }
      sum += q * k;
    }
    return sum;
  }
  /// The columns of A with the largest sums of |x A|, where element(row, i) of `rows` rows is x.
  template <typename Element>
  [[nodiscard]] static std::vector<std::int64_t> columns_of_max(const HeadAdapters& adapters,
                                                                std::int64_t kv, std::int64_t rows,
                                                                std::int64_t count,
                                                                Element element) {
    std::vector<std::pair<double, std::int64_t>> sums;
    for (std::int64_t column = 0; column < kDim; ++column) {
      double sum = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        double x = 0;
        for (std::int64_t i = 0; i < kDim; ++i) x += element(row, i) * adapters.at(kv, i, column);
        sum += std::abs(x);
      }
      sums.push_back({-sum, column});
    }
    std::sort(sums.begin(), sums.end());
    std::vector<std::int64_t> columns;
    for (std::int64_t c = 0; c < count; ++c) {
      columns.push_back(sums[static_cast<std::size_t>(c)].second);
    }
    return columns;
  }

  /// Every live group of each query head scores its best token by `expected(head, token)`.
  template <typename Expected>
  void expect_scores(const Scores& scores, const Groups& groups, Expected expected) {
    ASSERT_EQ(scores.rows, 6);
    for (std::int64_t head = 0; head < 6; ++head) {
      for (GroupId group = 0; group < groups.count(); ++group) {
        double best = -std::numeric_limits<double>::infinity();
        for (const Token token : groups.members(group)) {
          best = std::max(best, expected(head, token));
        }
        const double found = scores.row(head)[static_cast<std::size_t>(group)];
        if (groups.live(group)) {
          EXPECT_NEAR(found, best, 1e-3) << head << " " << group;
        } else {
          EXPECT_EQ(found, best);
        }
      }
    }
  }

  RandomLayer layer_{40, 8};
};

TEST_F(ProjectedKeysTest, PcaTakesTheFirstDimensionsOfEachKvHead) {
  const HeadAdapters adapters("head_pca");
  for (const char* json :
       {R"({"part": "pca", "dims": 5})", R"({"part": "pca", "dims_share": 0.34})"}) {
    ScoredGroups scored(json, layer_, &adapters);
    scored.create_varied();
    expect_scores(scored.score(), scored.groups, [&](std::int64_t head, Token token) {
      return logit(adapters, head, token, {0, 1, 2, 3, 4});
    });
    // 29 tokens are in groups; 5 elements of 2 bytes each, for 2 KV heads.
    EXPECT_EQ(scored.groups.grouped_tokens(), 29);
    EXPECT_EQ(scored.cost().held_bytes, 29 * 2 * 5 * 2);
    EXPECT_EQ(scored.cost().flops, 6 * 2 * 5 * (29 + 16));
  }
}

TEST_F(ProjectedKeysTest, PartialTakesTheColumnsThatThePromptsQueriesUse) {
  const HeadAdapters adapters("head_skew");
  ScoredGroups scored(R"({"part": "partial", "skew": "adapter", "ratio": 0.26})", layer_,
                      &adapters);
  scored.add_prompt();
  scored.create_varied();
  std::map<std::int64_t, std::vector<std::int64_t>> columns;
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    // Rows: the 3 query heads of the KV head, 40 positions each.
    columns[kv] = columns_of_max(adapters, kv, 3 * 40, 4, [&](std::int64_t row, std::int64_t i) {
      return query(kv * 3 + row / 40, row % 40, i);
    });
  }
  EXPECT_NE(columns[0], columns[1]);
  expect_scores(scored.score(), scored.groups, [&](std::int64_t head, Token token) {
    return logit(adapters, head, token, columns[head / 3]);
  });
}

TEST_F(ProjectedKeysTest, PartialMayAddTheColumnsOfTheKeys) {
  const HeadAdapters adapters("head_skew");
  ScoredGroups scored(
      R"({"part": "partial", "skew": "adapter", "ratio": 0.2, "columns_of": "queries_and_keys"})",
      layer_, &adapters);
  scored.add_prompt();
  scored.create_varied();
  std::map<std::int64_t, std::vector<std::int64_t>> columns;
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    columns[kv] = columns_of_max(adapters, kv, 3 * 40, 3, [&](std::int64_t row, std::int64_t i) {
      return query(kv * 3 + row / 40, row % 40, i);
    });
    for (const std::int64_t column :
         columns_of_max(adapters, kv, 40, 3, [&](std::int64_t row, std::int64_t i) {
           return key(kv, static_cast<Token>(row), i);
         })) {
      if (std::count(columns[kv].begin(), columns[kv].end(), column) == 0) {
        columns[kv].push_back(column);
      }
    }
    EXPECT_GT(columns[kv].size(), 3u);
  }
  expect_scores(scored.score(), scored.groups, [&](std::int64_t head, Token token) {
    return logit(adapters, head, token, columns[head / 3]);
  });
}

TEST_F(ProjectedKeysTest, ASkewOfThePromptIsARotation) {
  ScoredGroups all(R"({"part": "partial", "ratio": 1})", layer_);
  all.add_prompt();
  all.create_varied();
  expect_scores(all.score(), all.groups,
                [&](std::int64_t head, Token token) { return layer_.logit(head, 40, token); });
}

TEST_F(ProjectedKeysTest, ASkewOfThePromptFindsTheDimensionsThatQueriesLieIn) {
  // Every query of KV head 0 lies in a plane, which two columns of the skew hold completely.
  RandomLayer flat(40, 8);
  for (std::int64_t head = 0; head < 3; ++head) {
    for (std::int64_t token = 0; token < 48; ++token) {
      Half* const row = flat.queries.data() + (head * 48 + token) * kDim;
      const float x = to_float(row[0]);
      const float y = to_float(row[1]);
      for (std::int64_t i = 0; i < kDim; ++i) {
        row[i] = to_half(i % 2 == 0 ? x : y * static_cast<float>(i) / 8);
      }
    }
  }
  ScoredGroups scored(R"({"part": "partial", "ratio": 0.125})", flat);
  scored.add_prompt();
  scored.create_varied();
  const Scores scores = scored.score();
  for (GroupId group = 0; group < scored.groups.count(); ++group) {
    double best = -std::numeric_limits<double>::infinity();
    for (const Token token : scored.groups.members(group)) {
      best = std::max(best, flat.logit(1, 40, token));
    }
    if (scored.groups.live(group)) {
      EXPECT_NEAR(scores.row(1)[static_cast<std::size_t>(group)], best, 5e-3);
    }
  }
}

TEST_F(ProjectedKeysTest, RefusesWhatIsNotThere) {
  const HeadAdapters pca("head_pca");
  EXPECT_THAT(user_error_of([&] { ScoredGroups(R"({"part": "pca", "dims": 17})", layer_, &pca); }),
              AllOf(HasSubstr("dims"), HasSubstr("17"), HasSubstr("at most 16")));
  EXPECT_THAT(user_error_of([&] { ScoredGroups(R"({"part": "pca"})", layer_); }),
              HasSubstr("/adapter/NN/head_pca"));
  EXPECT_THAT(
      user_error_of([&] { ScoredGroups(R"({"part": "partial", "skew": "adapter"})", layer_); }),
      HasSubstr("/adapter/NN/head_skew"));
  const RandomLayer other(40, 8, 1, 6, 2, 8);
  EXPECT_THAT(user_error_of([&] { ScoredGroups(R"({"part": "pca"})", other, &pca); }),
              HasSubstr("another shape"));
}

}  // namespace
}  // namespace kvreplay
