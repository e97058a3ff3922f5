-- Maps, lists and strings: built, changed, dropped, looked up in another order. For GHC's copying collector. Argument: scale.
import qualified Data.Map.Strict as M
import Data.Char (ord)
import Data.List (foldl')
import System.Environment (getArgs)

data Point = Point { number :: !Int, name :: String, more :: [Int] }

point :: Int -> Int -> String -> Point
point count i text = let p = Point i (text ++ show (i * 7919 `mod` count)) [i, 2 * i] in length (name p) `seq` sum (more p) `seq` p

main :: IO ()
main = do
  [scale] <- map read <$> getArgs
  let count = 120000 * scale
      points = M.fromList [(i, point count i "point-") | i <- [0 .. count - 1]]
  print (sum (map (sum . more) (M.elems points)))
  let index = foldl' (\m (i, p) -> M.insertWith (++) (name p) [i] m) M.empty (M.toList points)
  print (M.size index)
  let fewer = foldl' (flip M.delete) points [0, 3 .. count - 1]
  print (M.size fewer)
  let again = foldl' (\m i -> M.insert i (point count (i + 1) "again-") m) fewer [0, 3 .. count - 1]
      step (x, total) _ =
        let x' = (x * 1103515245 + 12345) `mod` 2147483648
            p = again M.! (x' `mod` count)
            total' = total + length (name p) + sum (more p)
        in x' `seq` total' `seq` (x', total')
  print (snd (foldl' step (12345, 0) [1 .. 200000 :: Int]))
  let hash h text = foldl' (\a c -> (a * 31 + ord c) `mod` 1000000007) h text
  print (foldl' hash 0 (M.keys index))
  print (foldl' hash 0 (map name (M.elems again)), sum (map number (M.elems again)))
