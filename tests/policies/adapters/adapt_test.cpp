#include "policies/adapters/adapt.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <tuple>

#include "base/build_info.hpp"
#include "base/random.hpp"
#include "policies/decide/directions.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "traces/operations/cut.hpp"
#include "traces/rope.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SyntheticShape kShape{
    .layers = 2, .head_dim = 8, .prompt = 120, .decode = 40, .query_window = 20};

using Element = std::function<double(std::int64_t row, std::int64_t column)>;

/// The rows times the columns of a matrix: sum over rows of (x P)_a (x P)_b.
double gram(std::int64_t rows, std::int64_t dim, const Element& x, const Element& matrix,
            std::int64_t a, std::int64_t b) {
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    double of_a = 0;
    double of_b = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      of_a += x(row, i) * matrix(i, a);
      of_b += x(row, i) * matrix(i, b);
    }
    sum += of_a * of_b;
  }
  return sum;
}

/// P is orthonormal, and turns the rows into uncorrelated columns whose squares fall or rise.
void expect_principal(std::int64_t rows, std::int64_t dim, std::int64_t columns, const Element& x,
                      const Element& matrix, bool falling) {
  double before = 0;
  double first = 0;
  for (std::int64_t a = 0; a < columns; ++a) {
    for (std::int64_t b = 0; b < columns; ++b) {
      double product = 0;
      for (std::int64_t i = 0; i < dim; ++i) product += matrix(i, a) * matrix(i, b);
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-5);
    }
    const double square = gram(rows, dim, x, matrix, a, a);
    if (a == 0) first = square;
    if (a > 0 && falling) {
      EXPECT_LE(square, before + 1e-3 * first);
    } else if (a > 0) {
      EXPECT_GE(square, before - 1e-3 * first);
    }
    if (a > 0) {
      EXPECT_NEAR(gram(rows, dim, x, matrix, a, a - 1) / (square + before), 0, 1e-3);
    }
    before = square;
  }
}

double element(const HalfTensor& tensor, std::int64_t head, std::int64_t row, std::int64_t i) {
  return static_cast<double>(to_float(tensor.row(head, row)[i]));
}

class AdaptTest : public ::testing::Test {
 protected:
  AdaptTest() {
    write_synthetic_trace(from_, kShape);
    SyntheticShape other = kShape;
    other.seed = 2;
    write_synthetic_trace(to_, other);
  }
  TemporaryFolder folder_;
  std::string from_ = folder_.file("from.kvtrace.h5");
  std::string to_ = folder_.file("to.kvtrace.h5");
  std::string out_ = folder_.file("out.kvtrace.h5");
};

TEST_F(AdaptTest, MatricesAreWhatTheyAreCalled) {
  const TraceReader trace(from_);
  const TraceLayer layer = trace.load_layer(1);
  const auto adapters = make_adapters(trace, 1, {.rank = 5});

  const Adapter& joint = adapters.at("joint_lowrank");
  EXPECT_THAT(joint.shape, ElementsAre(16, 5));
  EXPECT_EQ(joint.text_tokens, 160);
  expect_principal(
      160, 16, 5,
      [&](std::int64_t row, std::int64_t i) { return element(layer.keys, i / 8, row, i % 8); },
      [&](std::int64_t row, std::int64_t column) {
        return static_cast<double>(joint.values[static_cast<std::size_t>(row * 5 + column)]);
      },
      true);

  const Adapter& pca = adapters.at("head_pca");
  const Adapter& skew = adapters.at("head_skew");
  EXPECT_THAT(pca.shape, ElementsAre(2, 8, 8));
  EXPECT_THAT(skew.shape, ElementsAre(2, 8, 8));
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    const auto matrix_of = [kv](const Adapter& adapter) {
      return [&values = adapter.values, kv](std::int64_t row, std::int64_t column) {
        return static_cast<double>(values[static_cast<std::size_t>((kv * 8 + row) * 8 + column)]);
      };
    };
    std::vector<double> mean(8, 0);
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::int64_t row = 0; row < 160; ++row) {
        mean[i] += element(layer.keys, kv, row, static_cast<std::int64_t>(i)) / 160;
      }
    }
    expect_principal(
        160, 8, 8,
        [&](std::int64_t row, std::int64_t i) {
          return element(layer.keys, kv, row, i) - mean[static_cast<std::size_t>(i)];
        },
        matrix_of(pca), true);
    // The 3 query heads of the KV head, 60 queries each.
    expect_principal(
        180, 8, 8,
        [&](std::int64_t row, std::int64_t i) {
          return element(layer.queries, kv * 3 + row / 60, row % 60, i);
        },
        matrix_of(skew), false);
  }
}

/// One key, everywhere: at its own positions it spans what RoPE makes of it within 160 positions,
/// spread what it makes of it within 1,600.
TEST_F(AdaptTest, ATextIsSpreadOverMorePositions) {
  const TraceReader from(from_);
  const RotaryEmbedding rope(from.info(), from.file());
  const auto write = [&](const std::string& file, const TraceInfo& info, std::int64_t every) {
    TraceWriter writer(file, info, {.start = from.query_start(0)});
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      for (const auto& [tensor, heads, first] :
           {std::tuple{LayerTensor::kKey, std::int64_t{2}, std::int64_t{0}},
            {LayerTensor::kValue, std::int64_t{2}, std::int64_t{0}},
            {LayerTensor::kQuery, std::int64_t{6}, from.query_start(0)}}) {
        for (std::int64_t head = 0; head < heads; ++head) {
          std::vector<float> rows;
          for (std::int64_t t = first; t < 160; ++t) {
            std::vector<float> row{0.1F, 0.1F, 3, 3, 0.1F, 0.1F, 0, 0};  // in the slow pairs
            rope.rotate(row, t * every);
            rows.insert(rows.end(), row.begin(), row.end());
          }
          writer.append(layer, tensor, head, rows);
        }
      }
    }
    writer.write_tokens(from.token_ids(), from.token_statistic("entropy"),
                        from.token_statistic("top_probability"),
                        from.token_statistic("log_probability"));
    writer.finish();
  };
  write(folder_.file("dense.kvtrace.h5"), from.info(), 1);
  write(folder_.file("wide.kvtrace.h5"), from.info(), 10);
  const TraceReader dense(folder_.file("dense.kvtrace.h5"));
  const TraceReader wide(folder_.file("wide.kvtrace.h5"));
  const auto plain = make_adapters(dense, 1, {.rank = 2});
  const auto spread = make_adapters(dense, 1, {.rank = 2, .positions = 1600});
  const TraceLayer layer = wide.load_layer(1);
  /// What two columns keep of the squares of the keys that lie far apart.
  const auto kept = [&](const Adapter& adapter) {
    const auto matrix = [&](std::int64_t row, std::int64_t column) {
      return static_cast<double>(adapter.values[static_cast<std::size_t>(row * 2 + column)]);
    };
    const auto key = [&](std::int64_t row, std::int64_t i) {
      return element(layer.keys, i / 8, row, i % 8);
    };
    return gram(160, 16, key, matrix, 0, 0) + gram(160, 16, key, matrix, 1, 1);
  };
  const double best = kept(make_adapters(wide, 1, {.rank = 2}).at("joint_lowrank"));
  EXPECT_GT(kept(spread.at("joint_lowrank")), 0.999 * best);
  EXPECT_LT(kept(plain.at("joint_lowrank")), 0.9 * best);
  for (const auto& [name, adapter] : spread) {
    SCOPED_TRACE(name);
    EXPECT_NE(adapter.values, plain.at(name).values);
    EXPECT_EQ(adapter.positions, 1600);
    EXPECT_EQ(plain.at(name).positions, 0);
  }
  // A text that is as long as the recording stays as it is.
  EXPECT_EQ(make_adapters(dense, 1, {.rank = 2, .positions = 160}).at("joint_lowrank").values,
            plain.at("joint_lowrank").values);

  adapt_trace(dense, TraceReader(to_), {.rank = 4, .positions = 1600}, out_);
  EXPECT_EQ(TraceReader(out_).load_adapter(1, "joint_lowrank")->positions, 1600);
  TraceInfo scaled = from.info();
  scaled.rope_scaling = "llama3";
  write(folder_.file("scaled.kvtrace.h5"), scaled, 1);
  EXPECT_THAT(user_error_of([&] {
                (void)make_adapters(TraceReader(folder_.file("scaled.kvtrace.h5")), 1,
                                    {.positions = 1600});
              }),
              AllOf(HasSubstr("scaled.kvtrace.h5"), HasSubstr("rope_scaling")));
}

TEST_F(AdaptTest, TheCopyIsTheTraceWithItsMatrices) {
  const TraceReader from(from_);
  const TraceReader to(to_);
  adapt_trace(from, to, {.rank = 4}, out_);
  const TraceReader out(out_);
  out.verify();
  EXPECT_EQ(out.token_ids(), to.token_ids());
  const TraceLayer copy = out.load_layer(1);
  const TraceLayer original = to.load_layer(1);
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    EXPECT_TRUE(
        std::equal(copy.keys.head(kv), copy.keys.head(kv) + 160 * 8, original.keys.head(kv)));
  }
  EXPECT_THAT(out.adapter_names(1), ElementsAre("head_pca", "head_skew", "joint_lowrank"));
  EXPECT_EQ(out.load_adapter(1, "head_skew")->values,
            make_adapters(from, 1, {.rank = 4}).at("head_skew").values);
  EXPECT_EQ(out.load_adapter(1, "head_pca")->text_tokens, 160);

  // Existing adapters are replaced.
  const std::string again = folder_.file("again.kvtrace.h5");
  adapt_trace(from, out, {.rank = 7}, again);
  EXPECT_THAT(TraceReader(again).load_adapter(0, "joint_lowrank")->shape, ElementsAre(16, 7));
}

TEST_F(AdaptTest, RefusesTracesThatDoNotFit) {
  const TraceReader from(from_);
  const TraceReader to(to_);
  const auto error = [&](const TraceReader& source, const AdaptOptions& options) {
    return user_error_of([&] { adapt_trace(source, to, options, out_); });
  };
  EXPECT_THAT(error(from, {.rank = 17}), AllOf(HasSubstr("rank is 17"), HasSubstr("1 to 16")));
  EXPECT_THAT(error(from, {.rank = 0}), HasSubstr("rank is 0"));
  cut_trace(from, {.layers = {1}}, folder_.file("cut.kvtrace.h5"));
  EXPECT_THAT(error(TraceReader(folder_.file("cut.kvtrace.h5")), {.rank = 4}),
              AllOf(HasSubstr("layer 0 is not recorded"), HasSubstr("to.kvtrace.h5")));
  SyntheticShape other = kShape;
  other.kv_heads = 3;
  write_synthetic_trace(folder_.file("other.kvtrace.h5"), other);
  EXPECT_THAT(error(TraceReader(folder_.file("other.kvtrace.h5")), {.rank = 4}),
              AllOf(HasSubstr("3 KV heads"), HasSubstr("2 KV heads")));
}

/// The shipped trace identifies its text; a synthetic one does not.
TEST_F(AdaptTest, KnowsAMatrixOfTheTracesOwnText) {
  const TraceReader shipped(source_folder() + "/traces/data/smollm2-135m-story-3k.kvtrace.h5");
  EXPECT_THAT(adapters_of_own_text(shipped), IsEmpty());
  const std::string small = folder_.file("small.kvtrace.h5");
  cut_trace(shipped, {.layers = {24}, .window_start = 3000, .decode_tokens = 8}, small);
  adapt_trace(shipped, TraceReader(small), {.rank = 4}, out_);
  EXPECT_THAT(adapters_of_own_text(TraceReader(out_)),
              ElementsAre("head_pca", "head_skew", "joint_lowrank"));
  EXPECT_EQ(TraceReader(out_).load_adapter(0, "head_pca")->text_sha256, shipped.info().text_sha256);
}

TEST(Directions, OfRankOneIsTheVectorItself) {
  Directions directions(4);
  const std::vector<float> vector{1, -3, 2, 0};
  directions.add(vector);
  directions.add(std::vector<float>{-2, 6, -4, 0});
  const std::vector<float> leading = directions.leading(4);
  // The largest element is positive.
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(leading[i], -vector[i] / std::sqrt(14.0F), 1e-6);
  double squares = 0;
  for (const float x : leading) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(squares, 4, 1e-5);
}

/// More vectors than are added together, and a dimension that is no whole number of runs.
TEST(Directions, AreEigenvectorsOfTheSumOfProducts) {
  constexpr std::size_t kDim = 19;
  for (const int vectors : {1, 15, 16, 17, 50}) {
    Random random(static_cast<std::uint64_t>(vectors));
    Directions directions(kDim);
    std::vector<double> sums(kDim * kDim);
    for (int v = 0; v < vectors; ++v) {
      std::vector<float> vector(kDim);
      for (float& x : vector) x = static_cast<float>(random.uniform() - 0.3);
      directions.add(vector);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += static_cast<double>(vector[i / kDim]) * static_cast<double>(vector[i % kDim]);
      }
    }
    const std::vector<float> leading = directions.leading(kDim);
    double before = 1e9;
    for (std::size_t d = 0; d < kDim; ++d) {
      const float* const row = leading.data() + d * kDim;
      std::vector<double> product(kDim);
      double value = 0;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        product[i / kDim] += sums[i] * static_cast<double>(row[i % kDim]);
      }
      for (std::size_t i = 0; i < kDim; ++i) value += product[i] * static_cast<double>(row[i]);
      for (std::size_t i = 0; i < kDim; ++i) {
        EXPECT_NEAR(product[i], value * static_cast<double>(row[i]), 1e-5 * vectors);
      }
      EXPECT_LE(value, before + 1e-5);
      before = value;
    }
  }
}

TEST(Directions, OfTooFewVectorsCompleteTheBasis) {
  EXPECT_EQ(Directions(3).leading(3).size(), 9u);
}

}  // namespace
}  // namespace kvreplay
