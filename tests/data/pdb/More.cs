// The other half of a type: its constructor has lines in two documents.
namespace Lines
{
    public partial class Shop
    {
        private int more = new System.Random(1).Next();

        public Shop()
        {
            Count = more;
        }
    }
}
